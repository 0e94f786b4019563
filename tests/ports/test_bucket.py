"""The bucket: errors of the store in our words, without secrets; addresses; counts."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Final

import pytest

from penstock.errors import (
    BadArgument,
    NoSuchObject,
    ObjectChanged,
    ObjectExists,
    PenstockError,
    StorageUnavailable,
    StorageUnusable,
)
from penstock.ports import Bucket, BucketAddress, RequestCount
from tests.server.apart import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS: Final = {"access_key_id": "AKID", "secret_access_key": "hidden", "region": "us-east-1", "allow_http": "true"}
SECRETS: Final = ("AKID", "hidden", "AWS4-HMAC", "<Error>", "StringToSign")


class Answers(BaseHTTPRequestHandler):
    """Answers every request in the same way."""

    protocol_version = "HTTP/1.1"
    status = 200
    code = ""
    cut: str | None = None  # "at once", or "in the middle"
    requests = 0

    def do_PUT(self) -> None:
        type(self).requests += 1
        self.rfile.read(int(self.headers.get("content-length") or 0))
        text = "<StringToSign>AWS4-HMAC-SHA256 AKID</StringToSign>"
        body = f"<Error><Code>{self.code}</Code>{text}</Error>".encode() if self.code else b"x" * 100
        if self.cut != "at once":
            self.send_response(self.status)
            self.send_header("etag", '"1"')
            self.send_header("last-modified", "Mon, 16 Nov 2026 10:00:00 GMT")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:50] if self.cut else body)
        self.close_connection = self.cut is not None

    do_GET = do_PUT  # noqa: N815 - as the base class has it

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@contextmanager
def answering(**answer: object) -> Iterator[tuple[Bucket, type[Answers]]]:
    """A bucket of a server that answers every request in the same way."""
    handler = type("Handler", (Answers,), answer)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_port}"
            yield Bucket("s3://b/p", options=OPTIONS | {"endpoint": endpoint}), handler
        finally:
            server.shutdown()
            thread.join()


def message_of(error: PenstockError) -> str:
    """Return the message, once it is clear that neither it nor what it is chained to has a secret."""
    assert not any(secret in f"{error} {error!r} {error.__cause__}" for secret in SECRETS)
    assert error.__suppress_context__
    assert len(str(error)) < 250
    return str(error)


@pytest.mark.parametrize(
    ("status", "code", "error", "reason"),
    [
        (503, "SlowDown", StorageUnavailable, "overloaded (503 SlowDown)"),
        (429, "TooManyRequests", StorageUnavailable, "overloaded (429"),
        (500, "InternalError", StorageUnavailable, "could not answer the request (500 InternalError)"),
        (409, "ConditionalRequestConflict", StorageUnavailable, "(409 ConditionalRequestConflict)"),
        (412, "PreconditionFailed", ObjectExists, "s3://b/p/a exists"),
        (403, "RequestTimeTooSkewed", StorageUnusable, "set this machine's clock"),
        (403, "InvalidAccessKeyId", StorageUnusable, "credentials are wrong"),
        (403, "SignatureDoesNotMatch", StorageUnusable, "credentials are wrong"),
        (403, "AccessDenied", StorageUnusable, "do not permit"),
        (404, "NoSuchBucket", StorageUnusable, "no such bucket"),
        (404, "NoSuchKey", NoSuchObject, "no object s3://b/p/a"),
        (301, "PermanentRedirect", StorageUnusable, "another region"),
        (400, "InvalidRequest", StorageUnusable, "refuses the request (400 InvalidRequest)"),
        (501, "NotImplemented", StorageUnusable, "refuses the request (501 NotImplemented)"),
    ],
)
def test_a_refused_put_says_why(status: int, code: str, error: type[PenstockError], reason: str) -> None:
    """What may have been done is repeated, what was refused is not; and the text for logs has no secrets."""
    with answering(status=status, code=code) as (bucket, handler):
        with pytest.raises(error) as caught:
            bucket.put_new("a", b"data")
        assert handler.requests == 1  # repeating a put of unknown outcome would find its own object
    assert reason in message_of(caught.value)


def test_a_version_that_is_gone_has_changed() -> None:
    """Amazon answers 404 where others answer that the condition does not hold."""
    with answering(status=404, code="NoSuchKey") as (bucket, _), pytest.raises(ObjectChanged):
        bucket.replace("a", b"data", tag='"1"')


def test_a_cut_connection_is_an_unknown_outcome() -> None:
    """The put may have been carried out before the connection was lost; a read is repeated."""
    with answering(cut="at once") as (bucket, handler):
        with pytest.raises(StorageUnavailable, match="connection was cut") as caught:
            bucket.put_new("a", b"data")
        message_of(caught.value)
        assert handler.requests == 1
        with pytest.raises(StorageUnavailable, match="connection was cut"):
            bucket.get("a")
        assert handler.requests > 2
    with answering(cut="in the middle") as (bucket, _), pytest.raises(StorageUnavailable):
        bucket.get("a")


def test_a_store_that_is_not_there_is_unavailable() -> None:
    """The owner goes on once it is back."""
    unreachable: dict[str, tuple[type[PenstockError], str]] = {
        f"http://127.0.0.1:{free_port()}": (StorageUnavailable, "refuses connections"),
        "http://no.such.host.invalid": (StorageUnavailable, "name of its host is unknown"),
    }
    with answering() as (_, handler), ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        unreachable[f"https://127.0.0.1:{server.server_port}"] = (StorageUnusable, "does not speak TLS")
        for endpoint, (error, reason) in unreachable.items():
            with pytest.raises(error, match=reason) as caught:
                Bucket("s3://b/p", options=OPTIONS | {"endpoint": endpoint}).put_new("a", b"data")
            message_of(caught.value)
        server.shutdown()


def test_plain_http_has_to_be_allowed() -> None:
    """Credentials and data are not sent in the clear because an address lacks a letter."""
    options = OPTIONS | {"endpoint": "http://127.0.0.1:1", "allow_http": "false"}
    with pytest.raises(StorageUnusable, match="AWS_ALLOW_HTTP=true"):
        Bucket("s3://b/p", options=options).get("a")


def test_requests_that_get_no_answer_end() -> None:
    """A store that hangs must not hang its owner."""
    gate = threading.Event()
    with answering() as (_, handler):
        handler.do_PUT = lambda _: gate.wait()  # type: ignore[assignment]
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,)).start()
            options = OPTIONS | {"endpoint": f"http://127.0.0.1:{server.server_port}"}
            with pytest.raises(StorageUnavailable, match="does not answer in time"):
                Bucket("s3://b/p", options=options, timeout_s=0.05).put_new("a", b"data")
            gate.set()
            server.shutdown()


@pytest.mark.parametrize("kind", ["s3", "azurite"])
def test_wrong_credentials_and_a_missing_bucket_are_refused_by_name(request: pytest.FixtureRequest, kind: str) -> None:
    """These are the mistakes of the first minute; a real server words them in its own way."""
    address: str = request.getfixturevalue(f"{kind}_address")
    wrong = {"secret_access_key": "hidden"} if kind == "s3" else {"account_key": "aGlkZGVu"}
    scheme = address.partition(":")[0]
    for bucket in (Bucket(address, options=wrong), Bucket(f"{scheme}://not-there/x")):
        with pytest.raises(StorageUnusable, match=r"credentials|no such bucket") as put:
            bucket.put_new("a", b"data")
        with pytest.raises(StorageUnusable, match=r"credentials are wrong|there is no such bucket") as got:
            bucket.get("a")
        for caught in (put, got):
            message_of(caught.value)


def test_requests_are_counted_by_kind(s3_address: str) -> None:
    """Every request costs money, and metrics say where it goes."""
    bucket = Bucket(s3_address)
    bucket.put_new("a/1", b"12345")
    bucket.replace("head", b"123", tag=None)
    bucket.get("a/1")
    bucket.get_range("a/1", 1, 2)
    bucket.exists("a/2")
    list(bucket.names("a/"))
    bucket.delete("a/1", "a/2", "head")
    counts = bucket.counts.read()
    assert counts == {
        "put": RequestCount(2, 8),
        "get": RequestCount(3, 7),
        "delete": RequestCount(1, 0),
        "list": RequestCount(1, 0),
    }


def test_addresses_name_a_bucket_a_prefix_and_settings() -> None:
    """One string says where a store is, so that it fits into options, configurations and commands."""
    address = BucketAddress.parse("s3://bucket/some/prefix/?group_wait_ms=5&x=a%20b")
    assert (address.scheme, address.bucket, address.prefix) == ("s3", "bucket", "some/prefix")
    assert address.settings == {"group_wait_ms": "5", "x": "a b"}
    assert address.url == "s3://bucket/some/prefix"
    assert BucketAddress.parse("az://container").url == "az://container"


@pytest.mark.parametrize(
    "text",
    [
        "s3://",
        "s3:///prefix",
        "gs://bucket/prefix",
        "s3://AKID:hidden@bucket/prefix",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/a b",
        "s3://bucket/prefix#part",
        "s3://bucket/prefix?a=1&a=2",
        "s3://bucket/prefix?a",
    ],
)
def test_an_invalid_address_is_refused_and_not_repeated(text: str) -> None:
    """An address with a password in it must not reach a log by way of its own refusal."""
    with pytest.raises(BadArgument) as caught:
        BucketAddress.parse(text)
    assert "hidden" not in str(caught.value)


def test_options_that_obstore_does_not_know_are_refused() -> None:
    """A setting with a typing error must not be ignored, and a secret beside it must not be shown."""
    with pytest.raises(BadArgument, match="acess_key_id") as caught:
        Bucket("s3://b/p", options={"acess_key_id": "hidden"})
    assert "hidden" not in str(caught.value)
    with pytest.raises(StorageUnusable, match="incomplete or invalid"):
        Bucket("s3://b/p", options={"timeout": "hidden"})
    assert repr(Bucket("s3://b/p", options=OPTIONS)) == "Bucket('s3://b/p')"


def test_variables_that_are_set_to_nothing_count_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template of a unit or a container leaves them so; obstore took the empty text for an address, and panicked."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    monkeypatch.setenv("AWS_REGION", "")
    options = OPTIONS | {"endpoint": f"http://127.0.0.1:{free_port()}"}
    with pytest.raises(StorageUnavailable, match="refuses connections"):
        Bucket("s3://bucket/x", options=options).get("x")
    assert (os.environ["AWS_ENDPOINT_URL"], os.environ["AWS_REGION"]) == ("", "")


@pytest.mark.parametrize("endpoint", ["nonsense", "127.0.0.1:99", "http://[", "http://", ""])
def test_an_endpoint_that_is_not_an_address_is_refused(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A panic of obstore would end the program with a page of Rust."""
    with pytest.raises(StorageUnusable, match=r"its endpoint .* is not an address: use https://host"):
        Bucket("s3://bucket/x", options=OPTIONS | {"endpoint": endpoint})
    if endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(StorageUnusable, match=r"its endpoint .* is not an address"):
            Bucket("s3://bucket/x", options=OPTIONS)
