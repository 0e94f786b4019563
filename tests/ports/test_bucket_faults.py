"""The bucket behind a network that fails: an error is one of ours, and says nothing that is not true."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from penstock.errors import ObjectExists, StorageUnavailable
from penstock.ports import Bucket
from tests.cutting_proxy import cutting_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cutting_proxy import CuttingProxy


@pytest.fixture
def proxy(s3_environment: dict[str, str]) -> Iterator[CuttingProxy]:
    """A proxy to the S3 server."""
    port = urlsplit(s3_environment["AWS_ENDPOINT_URL"]).port
    assert port is not None
    with cutting_proxy(port) as proxy:
        yield proxy


def test_a_put_over_a_network_that_cuts_is_there_or_fails(s3_address: str, proxy: CuttingProxy) -> None:
    """A put that succeeds is there; one that fails may be; and an object is never there in part."""
    steady, cut = Bucket(s3_address), Bucket(s3_address, options={"endpoint": f"http://127.0.0.1:{proxy.port}"})
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


def test_a_bucket_goes_on_after_the_network_is_back(s3_address: str, proxy: CuttingProxy) -> None:
    """Connections that died while they were idle cost no put, and a store that hangs ends in an error."""
    bucket = Bucket(s3_address, options={"endpoint": f"http://127.0.0.1:{proxy.port}"}, timeout_s=0.3)
    bucket.put_new("a", b"1")
    proxy.passes.clear()
    with pytest.raises(StorageUnavailable, match="in time"):
        bucket.put_new("b", b"2")
    proxy.passes.set()
    proxy.cut_all()
    bucket.put_new("c", b"3")
    assert bytes(bucket.get("a").data) == b"1"
