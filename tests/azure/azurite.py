"""A real Azure storage server for tests: Azurite, with a container."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.server.apart import free_port
from tests.shared_server import ServerStart, shared_server, wait_for_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CONTAINER", "azurite_server", "missing"]

CONTAINER: Final = "store"
_MAIN: Final = Path(__file__).parent.parent.parent / ".azurite/node_modules/azurite/dist/src/blob/main.js"
_ACCOUNT: Final = "devstoreaccount1"  # Azurite's own, with the key that its documentation has
_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_FLAGS: Final = ("--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck")


def missing() -> str | None:
    """Return why Azurite cannot run here; None if it can."""
    if shutil.which("node") is None:
        return "Node is not installed: apt-get install nodejs npm"
    return None if _MAIN.exists() else "Azurite is not installed: run make setup"


@contextmanager
def azurite_server(folder: Path) -> Iterator[dict[str, str]]:
    """Use the server of this test run; give the variables of the environment that lead a client there."""
    with shared_server(folder, _start) as environment:
        _make_container(environment["AZURE_STORAGE_ENDPOINT"])
        yield environment


def _start(_folder: Path) -> ServerStart:
    port = free_port()
    environment = {
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{_ACCOUNT}",
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_ALLOW_HTTP": "true",
    }
    command = ["node", str(_MAIN), "--blobPort", str(port), *_FLAGS]
    return ServerStart(command, environment)


def _make_container(endpoint: str) -> None:
    """Make the container, if no other process has; obstore cannot."""
    wait_for_port(int(endpoint.rpartition(":")[2].partition("/")[0]))
    headers = {"x-ms-date": formatdate(time.time(), usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "\n".join(f"{name}:{value}" for name, value in headers.items())
    text = "PUT" + 12 * "\n" + f"{signed}\n/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)).decode()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
    url = f"{endpoint}/{CONTAINER}?restype=container"
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers)).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 409:
            raise
