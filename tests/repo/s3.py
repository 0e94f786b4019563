"""A real S3 server for tests: SeaweedFS, in a process of its own, with a bucket."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.server.apart import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BUCKET", "WEED", "s3_server"]

BUCKET: Final = "bundles"
WEED: Final = Path(sys.prefix) / "bin" / "weed"


@contextmanager
def s3_server(folder: Path) -> Iterator[dict[str, str]]:
    """Run a server over a folder; give the variables of the environment that lead a client there."""
    ports = {name: free_port() for name in ("s3.port", "master.port", "volume.port", "filer.port")}
    grpc = {f"{name.removesuffix('port')}port.grpc": free_port() for name in ports}
    sockets = {f"{name}.localSocket": folder / name for name in ("filer", "s3")}
    flags = [f"-{name}={value}" for name, value in (ports | grpc | sockets).items()]
    at = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1"]
    command = [str(WEED), f"-logdir={folder}", "server", f"-dir={folder}", "-s3", *at, *flags]
    log = folder / "weed.log"
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as server:
        try:
            endpoint = f"http://127.0.0.1:{ports['s3.port']}"
            _make_bucket(server, f"{endpoint}/{BUCKET}", log)
            yield {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ALLOW_HTTP": "true",
            }
        finally:
            server.kill()
            for port in grpc.values():
                for socket in Path("/tmp").glob(f"seaweedfs-*-grpc-{port}.sock"):
                    socket.unlink()


def _make_bucket(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Ask for a bucket until the server is up."""
    request = urllib.request.Request(url, method="PUT")
    while server.poll() is None:
        try:
            urllib.request.urlopen(request, timeout=30).close()
        except (urllib.error.URLError, ConnectionError):
            continue
        return
    raise AssertionError(log.read_text())
