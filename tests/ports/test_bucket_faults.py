"""The bucket behind a network or a service that fails: an error is ours, and says nothing that is not true."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from penstock.errors import NoSuchObject, ObjectChanged, ObjectExists, StorageUnavailable
from penstock.ports import Bucket
from tests.cutting_proxy import cutting_proxy
from tests.faulty_http import FATES, faulty_http

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDPOINTS: Final = {"s3": "AWS_ENDPOINT_URL", "azure": "AZURE_STORAGE_ENDPOINT"}


class Store:
    """An object store of a test: its address, and that of its server."""

    def __init__(self, address: str, endpoint: str) -> None:
        self.address, self.endpoint = address, endpoint

    def through(self, port: int, **settings: Any) -> Bucket:  # noqa: ANN401 - of the bucket
        """Connect through a proxy."""
        path = urlsplit(self.endpoint).path
        return Bucket(self.address, options={"endpoint": f"http://127.0.0.1:{port}{path}"}, **settings)

    @property
    def port(self) -> int:
        """The port of its server."""
        port = urlsplit(self.endpoint).port
        assert port is not None
        return port


@pytest.fixture(params=ENDPOINTS)
def store(request: pytest.FixtureRequest) -> Store:
    """S3, and Azure."""
    names = ("s3_address", "s3_environment") if request.param == "s3" else ("azurite_address", "azurite_environment")
    address, environment = map(request.getfixturevalue, names)
    return Store(address, environment[ENDPOINTS[request.param]])


@pytest.fixture
def parts() -> Iterator[ExitStack]:
    """What a test has open."""
    with ExitStack() as parts:
        yield parts


def test_a_put_over_a_network_that_cuts_is_there_or_fails(store: Store, parts: ExitStack) -> None:
    """A put that succeeds is there; one that fails may be; and an object is never there in part."""
    proxy = parts.enter_context(cutting_proxy(store.port))
    steady, cut = Bucket(store.address), store.through(proxy.port)
    proxy.chance, data, unknown = 0.2, bytes(range(256)) * 64, 0
    for number in range(60):
        name = f"journal/{number}"
        try:
            cut.put_new(name, data)
        except StorageUnavailable:
            unknown += 1
            with suppress(ObjectExists):
                steady.put_new(name, data)
        assert steady.get(name).data == data
    assert proxy.cuts >= unknown > 0


def test_a_bucket_goes_on_after_the_network_is_back(store: Store, parts: ExitStack) -> None:
    """Connections that died while they were idle cost no put, and a store that hangs ends in an error."""
    proxy = parts.enter_context(cutting_proxy(store.port))
    bucket = store.through(proxy.port, timeout_s=0.5)
    bucket.put_new("a", b"1")
    proxy.passes.clear()
    with pytest.raises(StorageUnavailable, match="in time"):
        bucket.put_new("b", b"2")
    proxy.passes.set()
    proxy.cut_all()
    bucket.put_new("c", b"3")
    assert bytes(bucket.get("a").data) == b"1"


def test_a_service_that_hides_what_it_did_is_not_misunderstood(store: Store, parts: ExitStack) -> None:
    """A put that failed may be there and a replacement done: no error says that it is not, or that another did it."""
    proxy = parts.enter_context(faulty_http(store.endpoint, seed=5))
    steady, faulty = Bucket(store.address), store.through(proxy.port)
    tag = steady.replace("state", b"0", tag=None)
    proxy.chance, unknown = 0.3, 0
    for number in range(40):
        name, data = f"journal/{number}", b"%d" % number * 500
        try:
            faulty.put_new(name, data)
            assert steady.get(name).data == data
        except StorageUnavailable:  # and never ObjectExists: no request is repeated by itself
            unknown += 1
            with suppress(NoSuchObject):
                assert steady.get(name).data == data
        try:
            tag = faulty.replace("state", data, tag=tag)
        except StorageUnavailable:
            unknown += 1
        with pytest.raises(ObjectChanged):
            steady.replace("state", b"of another", tag="no such tag" if number % 2 else None)
        found = steady.get("state")
        assert bytes(found.data) in (b"0", data) or found.tag == tag
        tag = found.tag
    assert unknown > 5
    assert set(FATES) <= set(proxy.fates)


def test_reads_lists_and_deletions_are_repeated_until_they_are_done(store: Store, parts: ExitStack) -> None:
    """They do no harm when they are done twice, so a service that fails now and then is not noticed."""
    proxy = parts.enter_context(faulty_http(store.endpoint, seed=2))
    steady, faulty = Bucket(store.address), store.through(proxy.port)
    names = [f"plogs/{number:03}" for number in range(15)]
    for name in names:
        steady.put_new(name, name.encode() * 100)
    proxy.chance, failed = 0.2, 0
    for name in names:
        try:
            assert bytes(faulty.get(name).data) == name.encode() * 100
            assert bytes(faulty.get_range(name, 5, 10)) == (name.encode() * 2)[5:15]
            assert list(faulty.names("plogs/")) == names
        except StorageUnavailable:
            failed += 1
    assert failed < len(names) / 2
    for start in range(0, 15, 5):
        for _ in range(20):
            with suppress(StorageUnavailable):
                faulty.delete(*names[start : start + 5])
                break
    assert list(steady.names("plogs/")) == []
