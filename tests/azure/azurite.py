"""A real Azure storage server for tests: Azurite, with a container for each test.

Azurite sorts the names of all blobs that it has, of all containers, whenever one blob is deleted. A batch of 256
deletions would take half a minute among the blobs of a few hundred tests, and no other request is answered meanwhile.
So a test deletes its container when it ends, which costs one sorting.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import time
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from tests.server.apart import free_port
from tests.shared_server import ServerStart, shared_server, wait_for_port

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["azurite_container", "azurite_server", "missing"]

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
        wait_for_port(int(environment["AZURE_STORAGE_ENDPOINT"].rpartition(":")[2].partition("/")[0]))
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


@contextmanager
def azurite_container(environment: dict[str, str]) -> Iterator[str]:
    """Use a new container, with all that is put into it, until the block ends; give its name."""
    name, endpoint = uuid4().hex, environment["AZURE_STORAGE_ENDPOINT"]
    _request_container("PUT", endpoint, name)  # obstore cannot
    try:
        yield name
    finally:
        _request_container("DELETE", endpoint, name)


def _request_container(method: str, endpoint: str, name: str) -> None:
    headers = {"x-ms-date": formatdate(time.time(), usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "\n".join(f"{header}:{value}" for header, value in headers.items())
    text = method + 12 * "\n" + f"{signed}\n/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)).decode()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
    url = f"{endpoint}/{name}?restype=container"
    urllib.request.urlopen(urllib.request.Request(url, method=method, headers=headers), timeout=60).close()
