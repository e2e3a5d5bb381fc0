"""DeleteObjects through boto3 at a fraction of its cost: requests written and plain answers read without element trees.

botocore spends most of a delete of 1,000 keys on building and parsing XML. Its own events let a client do that part
otherwise; signing, checksums, connections, errors and anything unusual in an answer stay botocore's.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from botocore import handlers
from botocore.model import OperationModel

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_KEYS = "delegation_keys"
_START = '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>'
_BETWEEN = "</Key></Object><Object><Key>"
_END = "</Key></Object></Delete>"
_NOT_IN_XML = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff]")

# How an answer begins; the declaration may not name another encoding.
_OPENED = re.compile(rb'(?:<\?xml version="1\.0"(?: encoding="[Uu][Tt][Ff]-8")? *\?>)?\s*<DeleteResult[^>]*>\s*')
_CLOSED = b"</DeleteResult>"
_FIRST, _LAST = b"<Deleted><Key>", b"</Key></Deleted>"
_NEXT = (_LAST + _FIRST).decode()
_EMPTY = b"<DeleteResult/>"
# The same for all operations: botocore calls what is registered so before what names an operation.
_ANSWERS = "before-parse.s3.*"


def fits_xml(text: str) -> bool:
    """Whether XML 1.0 can carry the text so that it is read as it was written: no control character is in it."""
    # Two looks at C speed settle nearly every text; the pattern costs many times as much.
    return (text.isascii() and text.isprintable()) or _NOT_IN_XML.search(text) is None


def quicken(client: "S3Client") -> None:
    """Make `delete_objects` of this client cheap; what it takes, returns and raises stays the same."""
    events = client.meta.events
    events.register("provide-client-params.s3.DeleteObjects", _keep_keys)  # type: ignore[arg-type]
    events.register_last("before-call.s3.DeleteObjects", _write_body)
    # botocore parses each answer once more, whole, to find an error that came with status 200. A plain answer is none,
    # and once it is read here nothing is left of it to parse: so this has to come before that.
    look_for_error = handlers._handle_200_error  # type: ignore[attr-defined]  # noqa: SLF001
    events.unregister(_ANSWERS, look_for_error)
    events.register(_ANSWERS, _read_body)
    events.register(_ANSWERS, look_for_error)


def _keep_keys(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any] | None:
    """Take the keys aside if keys are all there is, so that botocore serialises none of them."""
    wanted = params.get("Delete", {})
    objects = wanted.get("Objects", ())
    if len(wanted) != 1 or set(map(len, objects)) != {1}:
        return None
    keys = [one["Key"] for one in objects]
    if not fits_xml("".join(keys)):
        return None
    context[_KEYS] = keys
    return params | {"Delete": {"Objects": []}}


def _write_body(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    keys = context.get(_KEYS)
    if keys is not None:
        params["body"] = request_body(keys)


def request_body(keys: Sequence[str]) -> bytes:
    """The XML of a DeleteObjects request for keys without control characters."""
    text = escape("\x00".join(keys)).replace("\x00", _BETWEEN)
    return f"{_START}{text}{_END}".encode()


def _read_body(
    operation_model: OperationModel,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    """Read an answer that only confirms; botocore is left an empty one to parse. Every other answer is botocore's."""
    if operation_model.name != "DeleteObjects" or response_dict["status_code"] != 200:
        return
    keys = confirmed_keys(response_dict["body"])
    if keys:
        customized_response_dict["Deleted"] = [{"Key": key} for key in keys]
        response_dict["body"] = _EMPTY


def confirmed_keys(body: bytes) -> list[str] | None:
    """The keys of an answer as S3 writes it that confirms keys and says nothing else; else None.

    Else: an error, a version, an escape, white space between elements.
    """
    opened = _OPENED.match(body)
    whole = body.rstrip()
    if opened is None or not whole.endswith(_CLOSED):
        return None
    inner = whole[opened.end() : -len(_CLOSED)]
    if not (inner.startswith(_FIRST) and inner.endswith(_LAST)) or b"&" in inner or b"\r" in inner:
        return None
    try:
        keys = inner[len(_FIRST) : -len(_LAST)].decode().split(_NEXT)
    except UnicodeDecodeError:
        return None
    # Four tags around each key; one more would be inside a "key".
    return keys if inner.count(b"<") == 4 * len(keys) else None
