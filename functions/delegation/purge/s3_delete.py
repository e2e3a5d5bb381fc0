"""DeleteObjects through boto3 at a fraction of its cost: requests written and plain answers read without element trees.

botocore spends most of a delete of 1,000 keys on building and parsing XML. Its own events let a client do that part
otherwise; signing, checksums, connections, errors and anything unusual in an answer stay botocore's.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_KEYS = "delegation_keys"
_START = '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>'
_BETWEEN = "</Key></Object><Object><Key>"
_END = "</Key></Object></Delete>"
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff]")

# An answer that only confirms keys, none of them escaped. The declaration may not name another encoding.
_CONFIRMED = re.compile(
    rb'(?:<\?xml version="1\.0"(?: encoding="[Uu][Tt][Ff]-8")? *\?>)?\s*'
    rb"<DeleteResult[^>]*>(?:\s*<Deleted>\s*<Key>[^<&\r]*</Key>\s*</Deleted>)*\s*</DeleteResult>\s*"
)
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_EMPTY = b"<DeleteResult/>"


def quicken(client: "S3Client") -> None:
    """Make `delete_objects` of this client cheap; what it takes, returns and raises stays the same."""
    events = client.meta.events
    events.register("provide-client-params.s3.DeleteObjects", _keep_keys)  # type: ignore[arg-type]
    events.register_last("before-call.s3.DeleteObjects", _write_body)
    events.register_last("before-parse.s3.DeleteObjects", _read_body)


def _keep_keys(params: dict[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any] | None:
    """Take the keys aside if keys are all there is, so that botocore serialises none of them."""
    wanted = params.get("Delete", {})
    objects = wanted.get("Objects", ())
    if len(wanted) != 1 or not objects or any(len(one) != 1 for one in objects):
        return None
    keys = [one["Key"] for one in objects]
    if _CONTROL.search("".join(keys)):
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


def _read_body(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    """Read an answer that only confirms; botocore is left an empty one to parse. Every other answer is botocore's."""
    if response_dict["status_code"] != 200:
        return
    keys = confirmed_keys(response_dict["body"])
    if keys:
        customized_response_dict["Deleted"] = [{"Key": key} for key in keys]
        response_dict["body"] = _EMPTY


def confirmed_keys(body: bytes) -> list[str] | None:
    """The keys of an answer that confirms keys and says nothing else (no error, no version, no escape); else None."""
    if _CONFIRMED.fullmatch(body) is None:
        return None
    try:
        return [key.decode() for key in _KEY.findall(body)]
    except UnicodeDecodeError:
        return None
