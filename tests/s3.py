"""A real S3 server for tests: SeaweedFS, with a bucket and the keys of one user."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.server.apart import free_port
from tests.shared_server import ServerStart, shared_server, wait_for_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUCKET", "s3_server"]

BUCKET: Final = "bundles"
_WEED: Final = Path(sys.prefix) / "bin" / "weed"
_KEY, _SECRET = "key-of-tests", "secret-of-tests"
_ONLY_S3: Final = ("-s3.port.iceberg=0", "-s3.port.lance=0")  # their ports are fixed, and another server may have them
_PORTS: Final = ("s3.port", "master.port", "volume.port", "filer.port")
_USERS: Final = {
    "identities": [
        {
            "name": "tests",
            "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}],
            "actions": ["Read", "Write", "List"],
        },
        {"name": "anonymous", "actions": ["Admin"]},  # who makes the bucket
    ]
}


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Use the server of this test run; give the variables of the environment that lead a client there."""
    with shared_server(folder, _start) as environment:
        _make_bucket(f"{environment['AWS_ENDPOINT_URL']}/{BUCKET}")
        yield environment


def _start(folder: Path) -> ServerStart:
    ports = {name: free_port() for name in _PORTS}
    grpc = {f"{name.removesuffix('port')}port.grpc": free_port() for name in ports}
    sockets = {f"{name}.localSocket": folder / name for name in ("filer", "s3")}
    users = folder / "users.json"
    users.write_text(json.dumps(_USERS))
    flags = [f"-{name}={value}" for name, value in (ports | grpc | sockets | {"s3.config": users}).items()]
    at = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false", *_ONLY_S3]
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3.port']}",
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    command = [str(_WEED), f"-logdir={folder}", "server", f"-dir={folder}", "-s3", *at, *flags]
    left = [f"/tmp/seaweedfs-{name.partition('.')[0]}-grpc-{port}.sock" for name, port in grpc.items()]
    return ServerStart(command, environment, left)


def _make_bucket(url: str) -> None:
    """Ask for the bucket until the server is up."""
    wait_for_port(int(url.rpartition(":")[2].partition("/")[0]))
    request = urllib.request.Request(url, method="PUT")
    for _ in range(2000):
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 409:  # another process has made it
                return
        except (urllib.error.URLError, ConnectionError):
            pass
        else:
            return
        time.sleep(0.05)
    raise AssertionError(f"cannot make the bucket {url}")
