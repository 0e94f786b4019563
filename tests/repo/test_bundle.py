"""Bundles: a stream in one file, read by parts, checked byte by byte, stacked."""

from __future__ import annotations

import io
import os
import threading
from contextlib import suppress
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.store import S3Store

from penstock.errors import (
    BadArgument,
    BundleCorrupt,
    BundleUnreadable,
    NotABundle,
    PenstockError,
    UnavailableRepresentation,
)
from penstock.repo import (
    INVENTORIES,
    TEXTS,
    TOPOLOGICAL,
    Between,
    Bundle,
    BundleResult,
    Everything,
    Repository,
    Revisions,
)
from tests.repo.streams import Items, contents, everything, history

if TYPE_CHECKING:
    from penstock import Store


@pytest.fixture
def repo(store: Store) -> Repository:
    repository = Repository.open(store, "code/history", create=True)
    repository.insert_stream(history(12))
    return repository


def test_a_bundle_is_a_frozen_repository(repo: Repository, tmp_path: Path) -> None:
    """What can be asked of a repository can be asked of its bundle, with the same answers."""
    result = Bundle.write(tmp_path / "all.bundle", repo.get_repository_stream(Everything()))
    assert result == BundleResult(36, missing=())
    with Bundle.open(tmp_path / "all.bundle") as bundle:
        assert contents(bundle.get_repository_stream(Everything(), TOPOLOGICAL)) == contents(history(12))
        assert bundle.text((TEXTS, b"file-1", b"r4")) == repo.text((TEXTS, b"file-1", b"r4"))
        assert bundle.annotate((TEXTS, b"file-1", b"r4")) == repo.annotate((TEXTS, b"file-1", b"r4"))
        assert list(bundle.revisions()) == list(repo.revisions())
        assert bundle.check().is_good


def test_a_bundle_is_written_to_any_file(repo: Repository, tmp_path: Path) -> None:
    """A socket or a pipe will do: nothing is sought in it."""

    class Pipe(io.RawIOBase):
        data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: bytes, /) -> int:  # type: ignore[override]
            self.data += data
            return len(data)

    pipe = Pipe()
    Bundle.write(pipe, repo.get_repository_stream(Everything()))  # type: ignore[arg-type]
    (tmp_path / "piped").write_bytes(pipe.data)
    with Bundle.open(tmp_path / "piped") as bundle:
        assert contents(everything(bundle)) == contents(history(12))


def test_a_bundle_of_changes_is_stacked_on_what_one_has(repo: Repository, store: Store, tmp_path: Path) -> None:
    """Changes travel alone; their deltas are resolved by the contents below, and named while there are none."""
    result = Bundle.write(tmp_path / "b", repo.get_repository_stream(Between([b"r11"], [b"r8"])))
    assert result.missing == ((INVENTORIES, b"r8"),)
    with Bundle.open(tmp_path / "b") as bundle:
        assert bundle.missing == result.missing
        [factory] = [
            factory
            for record in bundle.get_repository_stream(Revisions([b"r9"])).iter_contents()
            for factory in record.entries
            if record.key_prefix == (INVENTORIES,)
        ]
        assert factory.storage_kind == "knit-delta"
        with pytest.raises(UnavailableRepresentation):
            factory.get_bytes_as("fulltext")
        older = Repository.open(store, "code/older", create=True)
        older.insert_stream(history(9))
        assert bundle.stacked_on(older).text((INVENTORIES, b"r9")) == repo.text((INVENTORIES, b"r9"))
        assert older.stacked_on(bundle.stacked_on(older)).text((TEXTS, b"file-0", b"r9")) == repo.text(
            (TEXTS, b"file-0", b"r9")
        )
        assert older.insert_stream(bundle.get_repository_stream(Everything())).added == 9
        assert contents(everything(older)) == contents(history(12))


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """No damage goes unnoticed, and none is answered with anything but the error that says so."""
    path = tmp_path / "b"
    Bundle.write(path, history(4))
    good = path.read_bytes()
    for place in range(len(good)):
        damaged = bytearray(good)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        with suppress(BundleCorrupt), Bundle.open(path) as bundle:
            errors = bundle.check().errors
            assert errors, f"byte {place} of {len(good)} was changed unnoticed"
            assert {type(error) for error in errors} == {BundleCorrupt}


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    """A download that was cut off is not a smaller bundle."""
    path = tmp_path / "b"
    Bundle.write(path, history(4))
    good = path.read_bytes()
    for size in range(len(good)):
        path.write_bytes(good[:size])
        with pytest.raises(BundleCorrupt if size >= 8 else NotABundle):
            Bundle.open(path)


def test_a_failed_write_leaves_the_old_bundle(repo: Repository, tmp_path: Path) -> None:
    """A bundle that others read is replaced by a complete one, or not at all."""
    path = tmp_path / "b"
    Bundle.write(path, repo.get_repository_stream(Revisions([b"r1"])))
    before = path.read_bytes()
    broken = history(2)
    broken.add((TEXTS, b"file-0", b"r0"), (), b"other content")
    with pytest.raises(PenstockError):
        Bundle.write(path, broken)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["b"]


def test_bad_places_are_named(tmp_path: Path) -> None:
    """The error says which file, and why."""
    with pytest.raises(BundleUnreadable, match="nowhere"):
        Bundle.open(tmp_path / "nowhere")
    (tmp_path / "text").write_text("not a bundle, but long enough to be one")
    with pytest.raises(NotABundle, match="text is not a bundle: name a file"):
        Bundle.open(tmp_path / "text")
    with pytest.raises(BadArgument, match="cannot write"):
        Bundle.write(tmp_path / "no folder" / "b", Items())
    for address, message in (
        ("http://127.0.0.1:9/b", "no server answers there: check the address, and that the server runs"),
        ("http://b", "the address has no host, or no file: check it"),
        ("ftp://host/b", "the address is none of http, https or an object store: check it"),
        (f"file://{tmp_path}/nowhere", "there is no such file: check the address"),
    ):
        with pytest.raises(BundleUnreadable) as error:
            Bundle.open(address)
        assert str(error.value) == f"cannot read the bundle {address}: {message}"


class RangeServer(SimpleHTTPRequestHandler):
    """A web server that knows ranges, and remembers what it was asked for."""

    requests: list[str]

    def do_GET(self) -> None:
        data = (Path(self.directory) / self.path.strip("/")).read_bytes()
        asked = self.headers["Range"]
        self.requests.append(asked)
        first, last = (int(place) for place in asked.removeprefix("bytes=").split("-"))
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(data[first : last + 1])

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


def test_one_text_is_read_over_http_by_range(tmp_path: Path) -> None:
    """One text of a large bundle costs a few small requests, not a download."""
    items = Items()
    for number in range(40):
        items.add((TEXTS, b"f%d" % number, b"r1"), (), os.urandom(500_000))
    Bundle.write(tmp_path / "large", items)
    requests: list[str] = []
    handler = type("Handler", (RangeServer,), {"requests": requests})
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: handler(*args, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        bundle = Bundle.open(f"http://127.0.0.1:{server.server_port}/large")
        key = (TEXTS, b"f7", b"r1")
        assert bundle.text(key) == contents(items)[key]
        sizes = [1 + int(last) - int(first) for first, last in (asked[6:].split("-") for asked in requests)]
        assert sum(sizes) < 5 << 20
        assert len(sizes) <= 4
    finally:
        server.shutdown()
        server.server_close()


class PlainServer(SimpleHTTPRequestHandler):
    """A web server that knows no ranges, and answers with the number that a path ends with."""

    def do_HEAD(self) -> None:
        code = self.path.rpartition("/")[2]
        self.send_error(int(code)) if code.isdigit() else super().do_HEAD()

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


def test_what_a_web_server_refuses_is_said_in_plain_words(tmp_path: Path) -> None:
    """The library tells of retries, timeouts and its own classes; a user wants to know what to do."""
    Bundle.write(tmp_path / "b", history(2))
    server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *args: PlainServer(*args, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for path, message in {
            "404": "the server answers 404 Not Found: there is no such file; check the address",
            "403": "the server answers 403 Forbidden: check the credentials, and whether the file is there",
            "410": "the server answers 410 Gone: check the address",
            "b": "the server does not support range requests: use one that does, or download the file",
        }.items():
            address = f"http://127.0.0.1:{server.server_port}/{path}"
            with pytest.raises(BundleUnreadable) as error:
                Bundle.open(address)
            assert str(error.value) == f"cannot read the bundle {address}: {message}"
    finally:
        server.shutdown()
        server.server_close()


def test_a_bundle_in_an_object_store_is_read_there(tmp_path: Path, s3_address: str) -> None:
    """The environment says where the object store is, and how one signs in, as for other programs."""
    Bundle.write(tmp_path / "b", history(20))
    obstore.put(S3Store.from_url(s3_address), "some/history.bundle", (tmp_path / "b").read_bytes())
    with Bundle.open(f"{s3_address}/some/history.bundle") as bundle:
        assert contents(everything(bundle)) == contents(history(20))
    with pytest.raises(BundleUnreadable, match="some/nothing"):
        Bundle.open(f"{s3_address}/some/nothing")


def test_bundle_takes_the_place_of_files_alone(repo: Repository, tmp_path: Path) -> None:
    """Root wrote a bundle to a device, and the device was gone; a web server could not read what root had written."""
    plain, link, pipe = tmp_path / "plain", tmp_path / "link", tmp_path / "pipe"
    plain.touch()
    link.symlink_to(plain)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for path in (link, pipe):
        Bundle.write(path, repo.get_repository_stream(Everything()))
    assert (link.is_symlink(), pipe.is_fifo()) == (True, True)
    assert os.read(reader, 1 << 16) == plain.read_bytes()
    os.close(reader)
    tmp_path.joinpath("new").touch()
    assert plain.stat().st_mode == tmp_path.joinpath("new").stat().st_mode
    with pytest.raises(BadArgument, match=r"cannot write the bundle .*: Is a directory"):
        Bundle.write(tmp_path, repo.get_repository_stream(Everything()))
