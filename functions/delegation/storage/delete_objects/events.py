"""DeleteObjects of a boto3 client through botocore's events (Boto3 documentation, Extensibility guide). botocore spends
most of a thousand keys' delete on XML. For the versions in PINNED the body is written once, as bytes, and the answer is
read by `answers`; all else, and other versions, use botocore alone. tests/unit/storage/test_botocore_events.py pins
what this relies on."""

import base64
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import botocore

from delegation.storage.delete_objects.answers import read_answer, root_of
from delegation.storage.s3_answers import FOREIGN

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Major and minor versions; the test fails for the installed one if it is missing here.
PINNED = frozenset({(1, 44)})
# The name under which an answer that `answers` has read is in what the client returns.
READ = "DelegationAnswer"
_KEYS = "delegation_keys"
_START = b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>'
_BETWEEN = "</Key></Object><Object><Key>"
_END = b"</Key></Object></Delete>"
# botocore calls the handlers of `before-parse.s3.*` before those of `before-parse.s3.DeleteObjects`, and one of them
# parses every answer to look for an error. It skips an empty one, so ours must come first, as those of this name do.
_BEFORE_PARSE = "before-parse.*.DeleteObjects"


def prepare_for_deletes(client: "S3Client", *, version: str = botocore.__version__) -> None:
    """Send Content-MD5 beside CRC32 with DeleteObjects, and read only its own kind of answer. Many S3-compatible stores
    accept only the older checksum. `version` is botocore's."""
    events = client.meta.events
    events.register("before-call.s3.DeleteObjects", _add_md5)
    events.register("after-call.s3.DeleteObjects", _check_kind)
    if is_pinned(version):
        events.register_first("before-call.s3.DeleteObjects", _write_body)
        events.register("provide-client-params.s3.DeleteObjects", _take_keys)  # type: ignore[arg-type]
    events.register(_BEFORE_PARSE, partial(_read_body, is_pinned=is_pinned(version)))


def is_pinned(version: str = botocore.__version__) -> bool:
    return tuple(int(part) for part in version.split(".")[:2]) in PINNED


def _take_keys(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any] | None:
    """Move the keys into the context if the request has nothing else, so that botocore does not serialize them."""
    wanted = params["Delete"]
    objects: Sequence[dict[str, str]] = wanted["Objects"]
    if len(wanted) != 1 or set(map(len, objects)) != {1}:
        return None
    context[_KEYS] = [one["Key"] for one in objects]
    return params | {"Delete": {"Objects": []}}


def _write_body(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    keys = context.pop(_KEYS, None)
    if keys is not None:
        params["body"] = request_body(keys)


def request_body(keys: Sequence[str]) -> bytes:
    """Return the XML of a DeleteObjects request for keys that XML can contain."""
    text = escape("\x00".join(keys)).replace("\x00", _BETWEEN)
    return b"".join((_START, text.encode("utf-8", "xmlcharrefreplace"), _END))


def _add_md5(params: dict[str, Any], **_: Any) -> None:
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()


def _read_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], *, is_pinned: bool, **_: Any
) -> None:
    """Read an answer in S3's form and leave botocore an empty one; leave other answers to it."""
    if response_dict["status_code"] != 200:
        return
    answer = read_answer(response_dict["body"]) if is_pinned else None
    if answer is not None:
        customized_response_dict[READ] = answer
        response_dict["body"] = b""
    elif root_of(response_dict["body"]) not in {"DeleteResult", "Error"}:
        # botocore makes an InternalError of what is no XML.
        customized_response_dict[FOREIGN] = True


def _check_kind(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    """Remove what botocore read from a document other than DeleteResult; it does not check the root element."""
    if ("Deleted" in parsed or "Errors" in parsed) and root_of(http_response.content) != "DeleteResult":
        parsed.pop("Deleted", None)
        parsed.pop("Errors", None)
