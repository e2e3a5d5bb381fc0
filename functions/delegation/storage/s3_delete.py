"""Deletes keys with a boto3 client, and interprets the store's answers (Amazon S3 API Reference, DeleteObjects).

botocore spends most of the time of a thousand keys' delete on XML. So events (Boto3 documentation, Extensibility guide)
replace it for the versions in PINNED: the body is written once, as bytes, and expat reads an answer in S3's form in one
pass. Other answers and versions use botocore alone, with the same result. tests/unit/storage/test_botocore_events.py
pins what this relies on.

A key is deleted only if it is under `Deleted` and not under `Error`, or if its only errors are NoSuchKey and
NoSuchVersion.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from xml.parsers import expat
from xml.sax.saxutils import escape

import botocore

from delegation.storage.base import BatchResult, KeyFailure
from delegation.storage.s3_errors import (
    ABSENT,
    EXPIRED,
    EXPIRED_CODES,
    FAILED,
    NO_ANSWER,
    delete_code_of,
    fits_xml,
    is_unsupported,
)
from delegation.storage.sessions import FOREIGN, LATEST_START, MOST_BYTES, root_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# One entry for each of a thousand keys in both lists.
MOST_ENTRIES = 2_000
_ATTRIBUTES_OF_ROOT: tuple[dict[str, str], ...] = ({}, {"xmlns": "http://s3.amazonaws.com/doc/2006-03-01/"})
# The element names allowed at each depth.
_ROOT = frozenset({"DeleteResult"})
_ENTRIES = frozenset({"Deleted", "Error"})
_FIELDS = frozenset({"Key", "Code", "Message", "VersionId", "DeleteMarker", "DeleteMarkerVersionId"})
_MARKER = "DeleteMarkerVersionId"
# The text between two keys if only keys are confirmed, without white space.
_BETWEEN_CONFIRMED = b"</Key></Deleted><Deleted><Key>"
_NAMES = (_ROOT, _ENTRIES, _FIELDS, frozenset[str]())


@dataclass(frozen=True, slots=True)
class DeleteAnswer:
    """The confirmed keys, each with whether it got a delete marker, and (key, code) of each error. An error's key or
    code is None unless it has exactly one. `markers` maps keys to the version ids of delete markers."""

    confirmed: dict[str, bool] = field(default_factory=dict)
    errors: list[tuple[str | None, str | None]] = field(default_factory=list)
    markers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, parsed: Mapping[str, Any]) -> "DeleteAnswer":
        return cls(
            {
                entry["Key"]: bool(entry.get("DeleteMarker"))
                for entry in parsed.get("Deleted", ())
                if _text(entry, "Key")
            },
            [(_text(entry, "Key"), _text(entry, "Code")) for entry in parsed.get("Errors", ())],
            {
                entry["Key"]: entry[_MARKER]
                for entry in parsed.get("Deleted", ())
                if entry.get("DeleteMarker") and _text(entry, "Key") and _text(entry, _MARKER)
            },
        )


def _text(entry: Mapping[str, Any], name: str) -> str | None:
    """Return a member, None if the answer has none or several of this name."""
    value = entry.get(name)
    return value if isinstance(value, str) else None


class _Irregular(Exception):
    pass


def read_answer(body: bytes) -> DeleteAnswer | None:
    """Return the content of an answer in S3's form, None for any other."""
    if not body or len(body) > MOST_BYTES:
        return None
    try:
        return _read_keys(body) or _read(body)
    except (_Irregular, expat.ExpatError):
        return None


def _read_keys(body: bytes) -> DeleteAnswer | None:
    """Return the content of an answer with only confirmed keys, None for any other. Its tags are counted, so expat need
    not report them: outside the keys there are only the root's, those before the first key and those after the last. So
    every text is a key, unless a key is empty."""
    between = body.count(_BETWEEN_CONFIRMED)
    tags = 4 * between + 6 + body.startswith(b"<?xml ")
    if (
        not 0 < between < MOST_ENTRIES
        or body.count(b"<") != tags
        or b"></Key>" in body
        or root_of(body) != "DeleteResult"
    ):
        return None
    keys: list[str] = []
    parser = expat.ParserCreate("utf-8", "}")
    parser.CharacterDataHandler = keys.append
    parser.Parse(body, True)
    # A key with an escape or a line break is reported as more than one text.
    return DeleteAnswer(dict.fromkeys(keys, False)) if len(keys) == between + 1 else None


def _read(body: bytes) -> DeleteAnswer:
    """Read an answer with at most three levels and no attributes but the root's namespace."""
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    answer = DeleteAnswer()
    confirmed, errors = answer.confirmed, answer.errors
    depth = entries = 0
    text = ""
    fields: dict[str, str] = {}

    def refuse(*_: Any) -> None:
        raise _Irregular

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, text
        if name not in _NAMES[depth]:
            raise _Irregular
        if attributes or not depth:
            begins_well = not depth and attributes in _ATTRIBUTES_OF_ROOT
            if not begins_well or body.find(b">", parser.CurrentByteIndex) >= LATEST_START:
                raise _Irregular
        depth += 1
        text = ""

    def characters(data: str) -> None:
        nonlocal text
        text += data

    def end(name: str) -> None:
        nonlocal depth, entries
        depth -= 1
        if depth == 2:
            if name in fields:
                raise _Irregular
            fields[name] = text
        elif depth == 1:
            entries += 1
            if entries > MOST_ENTRIES:
                raise _Irregular
            key = fields.get("Key")
            if name == "Error":
                errors.append((key, fields.get("Code")))
            elif key is not None:
                confirmed[key] = fields.get("DeleteMarker") == "true"
                if confirmed[key] and fields.get(_MARKER):
                    answer.markers[key] = fields[_MARKER]
            fields.clear()

    parser.StartElementHandler = start
    parser.CharacterDataHandler = characters
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = parser.ProcessingInstructionHandler = refuse
    parser.Parse(body, True)
    return answer


# Major and minor versions. A test fails if the installed version is missing.
PINNED = frozenset({(1, 44)})
# The key in the client's response of an answer read by `answers`.
READ = "DelegationAnswer"
_KEYS = "delegation_keys"
_START = b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>'
_BETWEEN = "</Key></Object><Object><Key>"
_END = b"</Key></Object></Delete>"
# botocore calls the handlers of `before-parse.s3.*` before those of `before-parse.s3.DeleteObjects`. One of them parses
# every answer for an error, but skips an empty one. So this handler must come first, and the first `*` makes it so.
_BEFORE_PARSE = "before-parse.*.DeleteObjects"


def prepare_for_deletes(client: "S3Client", *, version: str = botocore.__version__) -> None:
    """Send Content-MD5 beside CRC32 with DeleteObjects, and accept only DeleteObjects answers. Many S3-compatible
    stores accept only the older checksum. `version` is botocore's."""
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
    """Move the keys into the context if the request has nothing else, so botocore does not serialize them."""
    wanted = params["Delete"]
    objects: Sequence[dict[str, str]] = wanted["Objects"]
    if len(wanted) != 1 or set(map(len, objects)) != {1}:
        return None
    context[_KEYS] = [entry["Key"] for entry in objects]
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
    """Read an answer in S3's form and leave botocore an empty one. Other answers are left to botocore."""
    if response_dict["status_code"] != 200:
        return
    answer = read_answer(response_dict["body"]) if is_pinned else None
    if answer is not None:
        customized_response_dict[READ] = answer
        response_dict["body"] = b""
    elif root_of(response_dict["body"]) not in {"DeleteResult", "Error"}:
        # botocore would report text that is not XML as an InternalError.
        customized_response_dict[FOREIGN] = True


def _check_kind(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    """Discard what botocore read from a document other than DeleteResult. botocore does not check the root element."""
    if ("Deleted" in parsed or "Errors" in parsed) and root_of(http_response.content) != "DeleteResult":
        parsed.pop("Deleted", None)
        parsed.pop("Errors", None)


# A store that answers one of these for a key may still delete the key alone.
_ONE_BY_ONE = frozenset({
    "InvalidDigest", "InvalidRequest", "MethodNotAllowed", "MissingArgument", "MissingContentMD5", "NotImplemented",
})  # fmt: skip
# After one of these, further calls of the batch would only wait or add load.
_ENDS_BATCH = frozenset({"ConnectionFailed", "AnswerTooLarge", "SlowDown", "ServiceUnavailable", EXPIRED})


def delete_keys(client: "S3Client", bucket: str, keys: Sequence[str]) -> BatchResult:
    """Delete up to 1,000 keys; one by one if XML cannot contain them or the store refuses DeleteObjects."""
    plain, alone = _split_by_xml(keys)
    absent: set[str] = set()
    deleted, codes, markers, again = _delete_many(client, bucket, plain, absent) if plain else (set(), {}, False, [])
    for key, code, marker in _each(client, bucket, [*again, *alone], refused=codes.get(again[0]) if again else None):
        codes.pop(key, None)
        if code is None or code in ABSENT:
            deleted.add(key)
            absent.update([key] if code else [])
            markers = markers or marker
        else:
            codes[key] = code
    if len(deleted) == len(keys) and not absent:
        return BatchResult(tuple(keys), delete_markers=markers)
    return BatchResult(
        tuple(key for key in keys if key in deleted),
        tuple(KeyFailure(key, codes[key]) for key in keys if key in codes),
        delete_markers=markers,
        absent=tuple(key for key in keys if key in absent),
    )


def _split_by_xml(keys: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    if fits_xml("".join(keys)):
        return keys, ()
    return [key for key in keys if fits_xml(key)], [key for key in keys if not fits_xml(key)]


def _delete_many(
    client: "S3Client", bucket: str, keys: Sequence[str], absent: set[str]
) -> tuple[set[str], dict[str, str], bool, Sequence[str]]:
    """Return the deleted keys, the error codes of others, whether delete markers were written, and the refused keys.
    Adds deleted keys that an error reported as absent to `absent`."""
    try:
        answer: Mapping[str, Any] = client.delete_objects(
            Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys]}
        )
    except FAILED as error:
        return set(), dict.fromkeys(keys, delete_code_of(error)), False, keys if is_unsupported(error, 403, 404) else ()
    said: DeleteAnswer = answer.get(READ) or DeleteAnswer.of(answer)
    sent = set(keys)
    if not said.errors and sent <= said.confirmed.keys():
        return sent, {}, any(map(said.confirmed.__getitem__, keys)), ()
    if not said.errors and not said.confirmed:
        return set(), dict.fromkeys(keys, NO_ANSWER), False, keys
    confirmed = {key: marker for key, marker in said.confirmed.items() if key in sent}
    deleted = set(confirmed)
    codes: dict[str, str] = {}
    for key, code in said.errors:
        if key is None:
            # Some key was not deleted, and the store does not state which one.
            return set(), dict.fromkeys(keys, _code(code)), False, keys if code in _ONE_BY_ONE else ()
        if key in sent:
            _record(key, _code(code), deleted, codes, both=key in confirmed)
    codes |= {key: NO_ANSWER for key in keys if key not in deleted and key not in codes}
    absent |= deleted - confirmed.keys()
    again = [key for key, code in codes.items() if code in _ONE_BY_ONE]
    return deleted, codes, any(confirmed[key] for key in deleted if key in confirmed), again


def _code(code: str | None) -> str:
    """Return an error's code. Without exactly one code the key's state is unknown."""
    return (EXPIRED if code in EXPIRED_CODES else code) if code else NO_ANSWER


def _record(key: str, code: str, deleted: set[str], codes: dict[str, str], *, both: bool) -> None:
    """Record an error of a key. The key is absent if all its errors state that and it is not also under `Deleted`."""
    if code in ABSENT and not both:
        if key not in codes:
            deleted.add(key)
        return
    deleted.discard(key)
    codes[key] = NO_ANSWER if code in ABSENT else code


def _each(
    client: "S3Client", bucket: str, keys: Sequence[str], *, refused: str | None
) -> Iterator[tuple[str, str | None, bool]]:
    """Delete keys one by one; yield each with its error code, None if deleted, and whether it got a delete marker. A
    code in ABSENT means that the key does not exist. `refused` is DeleteObjects' code for the first key. If the key's
    own delete gets the same code, no other key is tried."""
    ended: str | None = None
    for number, key in enumerate(keys):
        code, marker = (ended, False) if ended else _delete_one(client, bucket, key)
        yield key, code, marker
        if code in _ENDS_BATCH or (not number and code == refused):
            ended = code


def _delete_one(client: "S3Client", bucket: str, key: str) -> tuple[str | None, bool]:
    try:
        answer = client.delete_object(Bucket=bucket, Key=key)
    except FAILED as error:
        return delete_code_of(error), False
    # S3 confirms with 204. A proxy may answer 200 without reaching the store.
    confirmed = answer["ResponseMetadata"]["HTTPStatusCode"] == 204
    return (None if confirmed else NO_ANSWER), bool(answer.get("DeleteMarker"))
