"""What the errors of obstore mean, in our words.

An error of obstore has a class, and a text with the URL, the server's whole answer and its own structures. Signatures
and access keys may be in it, so nothing of the text is repeated but the status and the name of the server's error.

A request has one of three outcomes. The store answered that it did nothing (``ObjectError``, ``StorageUnusable``), it
did what it was asked, or the outcome is unknown (``StorageUnavailable``). S3 answers 409 to a conditional put while
another one is under way, which obstore takes for an object that exists; it says nothing about the object.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penstock.errors import NoSuchObject, ObjectChanged, ObjectExists, StorageUnavailable, StorageUnusable

if TYPE_CHECKING:
    from penstock.errors import PenstockError

__all__ = ["failure", "is_past_the_end"]

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_NO_BUCKET: Final = re.compile(r"<Code>(NoSuchBucket|ContainerNotFound)</Code>|container does not exist")
_PAST_THE_END: Final = re.compile(r"status code: 416|Wanted range starting at \d+, but object was only")

_METADATA: Final = "http://169.254.169.254"  # where a machine in a cloud asks for its own credentials

_CREDENTIALS: Final = "the credentials are wrong, or have expired"
_UNUSABLE_CODES: Final = {
    "RequestTimeTooSkewed": "the clock of this machine and the store's differ too much: set this machine's clock",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "AuthenticationFailed": f"{_CREDENTIALS}, or the clock of this machine is wrong",
    "AuthorizationFailure": _CREDENTIALS,
    "ExpiredToken": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "AuthorizationHeaderMalformed": "the region is wrong: set AWS_REGION",
}
# In this order: each is looked for in the structures that obstore appends to its text.
_UNUSABLE_TEXTS: Final = {
    "BadScheme": "its endpoint is http://, which AWS_ALLOW_HTTP=true (AZURE_ALLOW_HTTP=true) would allow",
    "redirect without LOCATION": "the bucket is in another region: set AWS_REGION",
    "InvalidCertificate": "its certificate is not trusted, or is another host's",
    "InvalidContentType": "its endpoint does not speak TLS",
}
_UNAVAILABLE_TEXTS: Final = {
    "dns error": "the name of its host is unknown",
    "ConnectionRefused": "it refuses connections",
    "kind: Timeout": "it does not answer in time",
    "TimedOut": "it does not answer in time",
    "kind: Connect": "it cannot be reached",
    "HttpError": "the connection was cut",
}


def failure(error: BaseException, where: str) -> PenstockError:
    """Return our error for an error of obstore; its class is compared by name, so that obstore is not imported."""
    text, kind = str(error), type(error).__name__
    status, code = _first(_STATUS, text), _first(_CODE, text)
    if _NO_BUCKET.search(text):
        return StorageUnusable(where, reason="there is no such bucket: create it first")
    if isinstance(error, FileNotFoundError):
        return NoSuchObject(where)
    if kind == "PreconditionError":
        return ObjectChanged(where)
    if kind == "AlreadyExistsError" and (status == "412" or code == "BlobAlreadyExists"):
        return ObjectExists(where)
    if _METADATA in text:
        return StorageUnavailable(where, reason="the environment has no credentials, and this machine offers none")
    return _answered(where, status, code) if status else _unanswered(where, text, kind)


def is_past_the_end(error: BaseException) -> bool:
    """Return whether the store refused a range because the object ends before it."""
    return _PAST_THE_END.search(str(error)) is not None


def _first(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    return match[1] if match else ""


def _answered(where: str, status: str, code: str) -> PenstockError:
    answer = f"{status} {code}".strip()
    if code in _UNUSABLE_CODES:
        return StorageUnusable(where, reason=f"{_UNUSABLE_CODES[code]} ({answer})")
    if status in {"401", "403"}:
        reason = "these credentials do not permit the request, or there is no such bucket"
        return StorageUnusable(where, reason=f"{reason} ({answer})")
    if status in {"429", "503"}:
        return StorageUnavailable(where, reason=f"it is overloaded ({answer})")
    if status in {"408", "409"} or (status.startswith("5") and status != "501"):
        return StorageUnavailable(where, reason=f"it could not answer the request ({answer})")
    return StorageUnusable(where, reason=f"it refuses the request ({answer})")


def _unanswered(where: str, text: str, kind: str) -> PenstockError:
    for sign, reason in _UNUSABLE_TEXTS.items():
        if sign in text:
            return StorageUnusable(where, reason=reason)
    reasons = (reason for sign, reason in _UNAVAILABLE_TEXTS.items() if sign in text)
    return StorageUnavailable(where, reason=next(reasons, f"its answer is invalid ({kind})"))
