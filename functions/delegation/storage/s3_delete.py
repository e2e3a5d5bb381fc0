"""A cheaper DeleteObjects for boto3 clients: write requests and read plain answers without XML trees.

botocore spends most of a delete of 1,000 keys on XML. Its events replace that part; signing, checksums, connections,
errors and every unusual answer are left to botocore.
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

# The start of an answer; its XML declaration may name no other encoding.
_OPENED = re.compile(rb'(?:<\?xml version="1\.0"(?: encoding="[Uu][Tt][Ff]-8")? *\?>)?\s*<DeleteResult[^>]*>\s*')
_CLOSED = b"</DeleteResult>"
_FIRST, _LAST = b"<Deleted><Key>", b"</Key></Deleted>"
_NEXT = (_LAST + _FIRST).decode()
_EMPTY = b"<DeleteResult/>"
# For all operations: botocore calls these handlers before those of one operation.
_ANSWERS = "before-parse.s3.*"


def fits_xml(text: str) -> bool:
    """Return whether XML 1.0 can contain the text unchanged: it has no control characters."""
    # Two fast checks decide for nearly every text; the pattern costs many times as much.
    return (text.isascii() and text.isprintable()) or _NOT_IN_XML.search(text) is None


def quicken(client: "S3Client") -> None:
    """Make `delete_objects` of this client cheaper; its parameters, results and errors do not change."""
    events = client.meta.events
    events.register("provide-client-params.s3.DeleteObjects", _keep_keys)  # type: ignore[arg-type]
    events.register_last("before-call.s3.DeleteObjects", _write_body)
    # botocore parses each answer a second time to find an error that came with status 200. `_read_body` empties plain
    # answers, so it must run first.
    look_for_error = handlers._handle_200_error  # type: ignore[attr-defined]  # noqa: SLF001
    events.unregister(_ANSWERS, look_for_error)
    events.register(_ANSWERS, _read_body)
    events.register(_ANSWERS, look_for_error)


def _keep_keys(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any] | None:
    """Move the keys into the context if the request has nothing else, so that botocore serializes none."""
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
    """Return the XML of a DeleteObjects request for keys without control characters."""
    text = escape("\x00".join(keys)).replace("\x00", _BETWEEN)
    return f"{_START}{text}{_END}".encode()


def _read_body(
    operation_model: OperationModel,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    """Read an answer that only confirms deletes, and leave botocore an empty one; leave every other answer to it."""
    if operation_model.name != "DeleteObjects" or response_dict["status_code"] != 200:
        return
    keys = confirmed_keys(response_dict["body"])
    if keys:
        customized_response_dict["Deleted"] = [{"Key": key} for key in keys]
        response_dict["body"] = _EMPTY


def confirmed_keys(body: bytes) -> list[str] | None:
    """Return the keys of an answer that only confirms keys, in the form that S3 writes.

    Returns None for any other answer: with an error, a version, an escape or white space between elements.
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
    # Each key has four tags around it; one more would be inside a key.
    return keys if inner.count(b"<") == 4 * len(keys) else None
