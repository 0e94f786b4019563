"""The bucket: objects in S3, Azure, or a server that speaks like one of them, through obstore.

A put is one request and is never repeated here: a caller that does not know whether it was carried out looks at the
object. Reads, listings and deletions are repeated a few times, since doing them twice does no harm. Every request ends
after ``timeout_s``. A bucket that is not patient repeats nothing.

Credentials come from the environment (``AWS_ACCESS_KEY_ID``, ``AZURE_STORAGE_ACCOUNT_KEY``, ...), from the machine, or
from ``options``, which have obstore's names; no message or ``repr`` has them.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock import forks
from penstock.errors import BadArgument, NoSuchObject, ObjectChanged, ObjectExists, StorageUnusable
from penstock.ports._bucket_address import BucketAddress
from penstock.ports._bucket_errors import failure, is_past_the_end
from penstock.ports._objects import StoredObject
from penstock.ports._request_counts import RequestCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore import PutMode
    from obstore.store import AzureStore, RetryConfig, S3Store

    from penstock.ports._disk import Bytes

__all__ = ["Bucket"]

_CONNECT_TIMEOUT: Final = "5s"
_NO_RETRY: Final[RetryConfig] = {"max_retries": 0}
_RETRY: Final[RetryConfig] = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}
_DELETES_MAX: Final = {"s3": 1000, "az": 256}  # in one request
_EMPTY: Final = memoryview(b"")
_VARIABLES: Final = ("AWS_", "AZURE_")  # of the environment, which obstore reads
_ENDPOINTS: Final = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url")
_environment_lock: Final = threading.Lock()


class Bucket:
    """The objects below a prefix of a bucket, by the protocol :class:`penstock.ports.Objects`."""

    def __init__(
        self,
        address: BucketAddress | str,
        *,
        options: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        is_patient: bool = True,
    ) -> None:
        try:
            import obstore  # noqa: PLC0415 - installed with penstock-stream[objects], and needed for buckets only
        except ModuleNotFoundError:
            raise BadArgument(
                "a bucket needs the package obstore: in a clone of Penstock, run pip install '.[objects]'"
            ) from None
        forks.check_buckets()
        self._address = BucketAddress.parse(address) if isinstance(address, str) else address
        self._obstore, self._errors = obstore, (obstore.exceptions.BaseError, OSError)
        settings = {"timeout": f"{round(timeout_s * 1000)}ms", "connect_timeout": _CONNECT_TIMEOUT} | dict(
            options or {}
        )
        with _without_empty_variables():
            if self._address.scheme == "s3":
                self._check_endpoint(settings)
            self._puts = self._open(settings, _NO_RETRY)
            self._reads = self._open(settings, _RETRY if is_patient else _NO_RETRY)
        self.counts = RequestCounts()

    def _open(self, settings: dict[str, str], retry: RetryConfig) -> S3Store | AzureStore:
        kind = self._obstore.store.S3Store if self._address.scheme == "s3" else self._obstore.store.AzureStore
        try:
            return kind(
                self._address.bucket,
                prefix=self._address.prefix or None,
                config=settings,  # type: ignore[arg-type]  # names are checked by obstore
                retry_config=retry,
            )
        except self._obstore.exceptions.UnknownConfigurationKeyError:
            raise BadArgument(f"unknown option for {self.where()}: one of {', '.join(sorted(settings))}") from None
        except (*self._errors, ValueError):
            reason = "its options, or those in the environment (AWS_..., AZURE_...), are incomplete or invalid"
            raise StorageUnusable(self.where(), reason=reason) from None

    def _check_endpoint(self, settings: dict[str, str]) -> None:
        """Refuse an endpoint for S3 that is not an address: obstore would panic at the first request."""
        variables = {name.lower(): value for name, value in os.environ.items() if name.startswith(_VARIABLES)}
        given = variables | {name.lower(): value for name, value in settings.items()}
        if not all(_is_url(given[name]) for name in _ENDPOINTS if name in given):
            reason = "its endpoint (AWS_ENDPOINT_URL) is not an address: use https://host or https://host:port"
            raise StorageUnusable(self.where(), reason=reason)

    def __repr__(self) -> str:
        return f"Bucket({self.where()!r})"

    def where(self, name: str = "") -> str:
        """Return the address of an object, for messages."""
        return f"{self._address.url}/{name}" if name else self._address.url

    def put_new(self, name: str, *parts: Bytes) -> None:
        """Put an object, all parts as one; ``ObjectExists`` if there is one of this name."""
        self._put(name, parts[0] if len(parts) == 1 else b"".join(parts), "create")

    def replace(self, name: str, data: Bytes, *, tag: str | None) -> str:
        """Replace the version with this tag, or put the first one if it is None; return the new version's tag."""
        try:
            return self._put(name, data, "create" if tag is None else {"e_tag": tag})
        except (ObjectExists, NoSuchObject):
            raise ObjectChanged(self.where(name)) from None

    def _put(self, name: str, data: Bytes, mode: PutMode) -> str:
        self.counts.add("put", size=len(data))
        with self._translated(name):
            return self._tag(name, self._obstore.put(self._puts, name, data, mode=mode, use_multipart=False)["e_tag"])

    def get(self, name: str) -> StoredObject:
        """Return a whole object; ``NoSuchObject`` if there is none."""
        self.counts.add("get")
        with self._translated(name):
            answer = self._obstore.get(self._reads, name)
            data = memoryview(answer.bytes())
        self.counts.add("get", requests=0, size=len(data))
        return StoredObject(data, self._tag(name, answer.meta["e_tag"]))

    def get_range(self, name: str, start: int, size: int) -> memoryview:
        """Return ``size`` bytes from ``start`` on, or fewer where the object ends."""
        if size == 0:
            self._head(name)
            return _EMPTY
        self.counts.add("get")
        with self._translated(name):
            try:
                data = memoryview(self._obstore.get_range(self._reads, name, start=start, length=size))
            except self._obstore.exceptions.BaseError as error:
                if not is_past_the_end(error):
                    raise
                data = _EMPTY
        self.counts.add("get", requests=0, size=len(data))
        return data

    def exists(self, name: str) -> bool:
        """Return whether there is such an object."""
        try:
            self._head(name)
        except NoSuchObject:
            return False
        return True

    def _head(self, name: str) -> None:
        self.counts.add("get")
        with self._translated(name):
            self._obstore.head(self._reads, name)

    def delete(self, *names: str) -> None:
        """Delete objects; those that are not there are no error."""
        size = _DELETES_MAX[self._address.scheme]
        for start in range(0, len(names), size):
            self._delete(names[start : start + size])

    def _delete(self, names: tuple[str, ...]) -> None:
        """Delete by one request. Azure reports the first object that is missing, which may hide another error."""
        self.counts.add("delete")
        try:
            with self._translated(names[0]):
                self._obstore.delete(self._reads, names)
        except NoSuchObject:
            if len(names) > 1:
                for name in names:
                    self._delete((name,))

    def names(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Return the names that begin with ``prefix`` and come after another name, sorted."""
        folder = prefix.rpartition("/")[0]  # obstore lists folders only
        offset = after if self._address.scheme == "s3" else ""  # not every server of Azure's kind heeds it
        sizes = self._listed(prefix, folder, offset)
        return iter(sorted(name for name in sizes if name > after))

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the bytes of all objects whose names begin with ``prefix``, by name."""
        return self._listed(prefix, prefix.rpartition("/")[0], "")

    def _listed(self, prefix: str, folder: str, offset: str) -> dict[str, int]:
        with self._translated(prefix):
            pages = list(self._obstore.list(self._reads, folder or None, offset=offset or None, chunk_size=1000))
        self.counts.add("list", requests=max(1, len(pages)))
        return {meta["path"]: meta["size"] for page in pages for meta in page if meta["path"].startswith(prefix)}

    def close(self) -> None:
        """Let go of the connections, which close when they have been idle."""

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Raise our error for one of obstore, without its text and its chain: they may hold credentials."""
        try:
            yield
        except self._errors as error:
            raise failure(error, self.where(name)) from None

    def _tag(self, name: str, tag: str | None) -> str:
        if tag is None:
            raise StorageUnusable(self.where(name), reason="it gives objects no tags, so conditional puts cannot work")
        return tag


def _is_url(text: str) -> bool:
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


@contextmanager
def _without_empty_variables() -> Iterator[None]:
    """Hide variables that are set to nothing for the block: obstore would take them for addresses, and panic."""
    with _environment_lock:
        empty = [name for name, value in os.environ.items() if not value and name.startswith(_VARIABLES)]
        for name in empty:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(dict.fromkeys(empty, ""))
