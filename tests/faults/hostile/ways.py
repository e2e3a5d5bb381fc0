"""The ways in which a store can be wrong, by name; none deletes a file that was not sent to it."""

import gzip
from collections.abc import Callable
from dataclasses import replace

from tests.faults.hostile.server import (
    NAMESPACE,
    Call,
    HostileStore,
    Reply,
    Way,
    deleted,
    error,
    failed,
    listed,
    result,
)

_PAGE = b"<html><head><title>%b</title></head><body>%b</body></html>"
_HUGE = 3 * 1024**3
_START = f"<DeleteResult {NAMESPACE}>".encode()


def page(status: int) -> Reply:
    """Return a proxy's page in HTML, whose <br> is no XML."""
    return Reply(status, b"<html><body><h1>proxy</h1><br></body></html>", {"Content-Type": "text/html"})


def to_deletes(answer: Reply | Callable[[Call], Reply], *, only: int = 0) -> Way:
    """Answer deletes without deleting; `only` the nth of them."""

    def way(call: Call, _store: HostileStore) -> Reply | None:
        if not call.deletes or (only and call.number != only):
            return None
        return answer if isinstance(answer, Reply) else answer(call)

    return way


def to_many(answer: Reply | Callable[[Call], Reply]) -> Way:
    """Answer DeleteObjects without deleting; DeleteObject is sound."""
    return to_kinds(answer, "delete")


def to_kinds(answer: Reply | Callable[[Call], Reply], *kinds: str) -> Way:
    def way(call: Call, _store: HostileStore) -> Reply | None:
        if call.kind not in kinds:
            return None
        return answer if isinstance(answer, Reply) else answer(call)

    return way


def inside(text: Callable[[tuple[str, ...]], str]) -> Callable[[Call], Reply]:
    """Return an answer to DeleteObjects made from the keys."""
    return lambda call: Reply(body=result(text(call.keys)))


def after_deleting(reply: Reply | Callable[[Call], Reply], *, part: float = 1.0) -> Way:
    """Delete the keys, or the first part of them, and answer wrongly."""

    def way(call: Call, store: HostileStore) -> Reply | None:
        if not call.deletes:
            return None
        store.remove(call.bucket, *call.keys[: round(len(call.keys) * part)])
        return reply if isinstance(reply, Reply) else reply(call)

    return way


def one_of(keys: tuple[str, ...], code: str) -> str:
    """Delete nothing of the first key; confirm the others, which are not deleted either."""
    return failed(code, *keys[:1])


def without_md5(call: Call, _store: HostileStore) -> Reply | None:
    return error("MissingContentMD5", 400) if call.kind == "delete" and not call.md5 else None


def sound_but_one(code: str, *, both: bool = False) -> Way:
    """Delete all but the first key of a call, and name that one under Error, or `both` lists."""

    def way(call: Call, store: HostileStore) -> Reply | None:
        if call.kind != "delete":
            return None
        first, *rest = call.keys
        store.remove(call.bucket, *rest)
        confirmed = call.keys if both else rest
        return Reply(body=result(deleted(*confirmed) + failed(code, first)))

    return way


def key_by_key(then: Reply | Callable[[Call], Reply]) -> Way:
    """Refuse DeleteObjects, and answer DeleteObject wrongly."""

    def way(call: Call, _store: HostileStore) -> Reply | None:
        if call.kind == "delete":
            return error("NotImplemented", 501)
        if call.kind != "single":
            return None
        return then if isinstance(then, Reply) else then(call)

    return way


def errs_for_absent(call: Call, store: HostileStore) -> Reply | None:
    """Delete what is there, and answer InternalError for each key that is not, as RustFS does."""
    absent = [key for key in call.keys if (call.bucket, key) not in store.objects]
    if not absent or not (call.deletes or call.kind == "probe"):
        return None
    if call.kind != "delete":
        return error("InternalError", 500)
    present = set(call.keys) - set(absent)
    store.remove(call.bucket, *present)
    return Reply(body=result(deleted(*present) + failed("InternalError", *absent)))


def no_conditions(answer: Reply) -> Way:
    """Answer so to a delete that has a condition; all else is sound."""
    return to_kinds(answer, "probe")


def wrong_endpoint(call: Call, _store: HostileStore) -> Reply | None:
    """Answer as a store without this bucket does, except to the reads of the plan."""
    if call.kind == "read":
        return None
    return Reply(404) if call.kind == "look" and not call.keys else error("NoSuchBucket", 404)


def keeps_the_root(call: Call, store: HostileStore) -> Reply | None:
    """Confirm the delete of the current metadata file and keep it."""
    if not any(key.endswith(".metadata.json") for key in call.keys) or not call.deletes:
        return None
    store.remove(call.bucket, *(key for key in call.keys if not key.endswith(".metadata.json")))
    return Reply(body=result(deleted(*call.keys))) if call.kind == "delete" else Reply(204)


def keeps_the_root_from(look: Reply) -> Way:
    """Confirm the delete of the current metadata file, keep it, and answer so to the look at it."""
    return lambda call, store: look if call.kind in {"look", "list"} else keeps_the_root(call, store)


def confirms_and_keeps(call: Call, _store: HostileStore) -> Reply | None:
    if call.kind == "delete":
        return Reply(body=result(deleted(*call.keys)))
    return Reply(204) if call.kind == "single" else None


def truncated(call: Call) -> Reply:
    whole = result(deleted(*call.keys))
    return Reply(body=whole[: len(whole) // 2], length=len(whole), then="close")


def torn_chunks(call: Call) -> Reply:
    half = result(deleted(*call.keys))[:200]
    return Reply(body=b"%x\r\n%b\r\nff" % (len(half), half), headers={"Transfer-Encoding": "chunked"}, then="close")


def bomb(call: Call) -> Reply:
    """Return XML whose entities stand for gigabytes, with the keys confirmed."""
    names = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 11))
    inner = f"&e10;{deleted(*call.keys)}"
    text = f'<!DOCTYPE x [<!ENTITY e0 "lol">{names}]><DeleteResult {NAMESPACE}>{inner}</DeleteResult>'
    return Reply(body=text.encode())


def listing(answer: Callable[[Call, HostileStore], Reply | None]) -> Way:
    """Answer listings so; all else is sound."""
    return lambda call, store: answer(call, store) if call.kind == "list" else None


def to_folders(*prefixes: str) -> Way:
    """Name these prefixes, `{}` being the asked one, where a listing is by folders."""
    return listing(
        lambda call, store: (
            listed(store, call.bucket, [], [one.replace("{}", call.keys[0]) for one in prefixes])
            if call.keys[2]
            else None
        )
    )


def again_from_the_start(call: Call, store: HostileStore) -> Reply:
    """Ignore after which key a page begins, of a location that has more than a page."""
    store.page = 2
    return store.listing(call.bucket, call.keys[0], "", call.keys[2])


def once_more(call: Call, store: HostileStore) -> Reply:
    """Repeat the last key of the page before."""
    store.page = 2
    sound = store.listing(call.bucket, *call.keys)
    if not call.keys[1]:
        return sound
    return listed(store, call.bucket, [call.keys[1], f"{call.keys[1]}x", f"{call.keys[1]}y"])


WRONG_CODES: dict[str, Way] = {
    "NoSuchBucket to every delete": to_deletes(error("NoSuchBucket", 404)),
    "NoSuchBucket once": to_deletes(error("NoSuchBucket", 404), only=1),
    "NoSuchBucket for each key": to_many(inside(lambda keys: failed("NoSuchBucket", *keys))),
    "NoSuchBucket for one key": sound_but_one("NoSuchBucket"),
    "code 404 for each key": to_many(inside(lambda keys: failed("404", *keys))),
    "code 404 for one key": sound_but_one("404"),
    "code NotFound for each key": to_many(inside(lambda keys: failed("NotFound", *keys))),
    "code NotFound to every delete": to_deletes(error("NotFound", 404)),
    "404 without a body": to_deletes(Reply(404)),
    "404 with a proxy's page": to_deletes(page(404)),
    "410 Gone": to_deletes(error("Gone", 410)),
    "no code for each key": to_many(inside(lambda keys: failed("", *keys))),
    "an unknown code": to_deletes(error("Teapot", 418)),
    "AccessDenied to every delete": to_deletes(error("AccessDenied", 403)),
    "AccessDenied for one key": sound_but_one("AccessDenied"),
    "InvalidAccessKeyId": to_deletes(error("InvalidAccessKeyId", 403)),
    "SignatureDoesNotMatch": to_deletes(error("SignatureDoesNotMatch", 403)),
    "RequestTimeTooSkewed": to_deletes(error("RequestTimeTooSkewed", 403)),
    "ExpiredToken": to_deletes(error("ExpiredToken", 400)),
    "MalformedXML": to_deletes(error("MalformedXML", 400)),
    "SlowDown to every delete": to_deletes(error("SlowDown", 503)),
    "SlowDown for each key": to_many(inside(lambda keys: failed("SlowDown", *keys))),
    "429 without a code": to_deletes(Reply(429)),
    "InternalError": to_deletes(error("InternalError", 500)),
    "InternalError in a 200": to_many(error("InternalError", 200)),
    "502 with a proxy's page": to_deletes(page(502)),
    "504 without a body": to_deletes(Reply(504)),
    "409 OperationAborted": to_deletes(error("OperationAborted", 409)),
    "301 to nowhere": to_deletes(error("PermanentRedirect", 301, "<Endpoint>nowhere.invalid</Endpoint>")),
    "307 to another bucket": to_deletes(Reply(307, headers={"Location": "/other/kept"})),
}

WRONG_BUCKET: dict[str, Way] = {
    "a wrong endpoint": wrong_endpoint,
    "the keys of another bucket": to_many(inside(lambda keys: deleted(*(f"lake/{key}" for key in keys)))),
    "the keys of another request": to_many(inside(lambda keys: deleted(*(f"{key}.other" for key in keys)))),
    "the keys in capitals": to_many(inside(lambda keys: deleted(*(key.upper() for key in keys)))),
    "the keys as in a URL": to_many(inside(lambda keys: deleted(*(key.replace("/", "%2F") for key in keys)))),
    "NoSuchBucket to the probe": to_kinds(error("NoSuchBucket", 404), "probe", "delete", "single"),
    "NoSuchBucket to the last look": keeps_the_root_from(error("NoSuchBucket", 404)),
    "404 without a code to the last look": keeps_the_root_from(Reply(404)),
}

WRONG_LISTS: dict[str, Way] = {
    "both lists": to_many(inside(lambda keys: deleted(*keys) + failed("AccessDenied", *keys))),
    "both lists, errors first": to_many(inside(lambda keys: failed("InternalError", *keys) + deleted(*keys))),
    "both lists for one key": sound_but_one("AccessDenied", both=True),
    "both lists with an error of no code": to_many(inside(lambda keys: deleted(*keys) + failed("", *keys))),
    "two errors for each key": to_many(inside(lambda keys: failed("AccessDenied", *keys) + failed("NoSuchKey", *keys))),
    "deleted without key": to_many(inside(lambda keys: "<Deleted/>" * len(keys))),
    "deleted with an empty key": to_many(inside(lambda keys: deleted(*[""] * len(keys)))),
    "deleted with a version and no key": to_many(
        inside(lambda keys: "<Deleted><VersionId>1</VersionId></Deleted>" * len(keys))
    ),
    "two keys in one entry": to_many(
        inside(lambda keys: f"<Deleted>{''.join(f'<Key>{key}</Key>' for key in keys)}<Key>x</Key></Deleted>")
    ),
    "an error without key": to_many(inside(lambda keys: deleted(*keys) + "<Error><Code>InternalError</Code></Error>")),
    "an error with two codes": to_many(
        inside(
            lambda keys: "".join(
                f"<Error><Key>{key}</Key><Code>NoSuchKey</Code><Code>AccessDenied</Code></Error>" for key in keys
            )
        )
    ),
    "half of the keys": after_deleting(inside(lambda keys: deleted(*keys[: len(keys) // 2])), part=0.5),
    "none of the keys": to_many(inside(lambda _keys: "")),
    "another kind of answer": to_many(
        lambda call: Reply(body=f"<ListBucketResult>{deleted(*call.keys)}</ListBucketResult>".encode())
    ),
    "a page that names the keys": to_many(
        lambda call: Reply(body=_PAGE % (b"ok", deleted(*call.keys).encode()), headers={"Content-Type": "text/html"})
    ),
    "an error that also confirms": to_many(
        lambda call: Reply(body=f"<Error><Code>NoSuchBucket</Code>{deleted(*call.keys)}</Error>".encode())
    ),
}

TORN: dict[str, Way] = {
    "an empty 200": to_deletes(Reply(200)),
    "a page in a 200": to_deletes(page(200)),
    "JSON in a 200": to_deletes(Reply(body=b'{"deleted": true}')),
    "202 Accepted": to_deletes(Reply(202)),
    "half an answer": to_many(truncated),
    "half an answer in chunks": to_many(torn_chunks),
    "an answer in gzip": to_many(lambda call: Reply(body=gzip.compress(result(deleted(*call.keys))))),
    "bytes that are no UTF-8": to_many(
        lambda call: Reply(body=result(deleted(*call.keys)).replace(b"wh", b"\xff\xfe"))
    ),
    "entities that grow": to_many(bomb),
    "a closed connection": to_deletes(Reply(raw=b"")),
    "a line that is no status": to_deletes(Reply(raw=b"220 smtp ready\r\n\r\n")),
    "status 999": to_deletes(Reply(raw=b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n")),
    "a length that is no number": to_deletes(Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n<x/>")),
    "a header without end": to_deletes(Reply(raw=b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n")),
    "a thousand headers": to_deletes(Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"X-Y: z\r\n" * 1_000 + b"\r\n")),
    "deleted, then a closed connection": after_deleting(Reply(raw=b"")),
    "deleted, then a 500": after_deleting(error("InternalError", 500)),
    "half deleted, then a closed connection": after_deleting(Reply(raw=b""), part=0.5),
}

LATE: dict[str, Way] = {
    "silent": to_deletes(Reply(raw=b"", then="silence")),
    "silent once": to_deletes(Reply(raw=b"", then="silence"), only=1),
    "silent after the headers": to_deletes(Reply(length=100, then="silence")),
    "late, after deleting": after_deleting(Reply(raw=b"", then="silence")),
    "byte by byte without end": to_deletes(Reply(body=_START, length=_HUGE, then="drip")),
}

HUGE: dict[str, Way] = {
    "3 GB in a 200": to_deletes(Reply(body=_START, length=_HUGE, then="flood")),
    "3 GB in a 500": to_deletes(Reply(500, b"<Error>", length=_HUGE, then="flood")),
    "more entries than keys": to_many(inside(lambda keys: deleted(*(f"x{n}" for n in range(200_000)), *keys[:0]))),
}

KEY_BY_KEY: dict[str, Way] = {
    "MD5 demanded": without_md5,
    "MissingContentMD5 in spite of one": to_many(error("MissingContentMD5", 400)),
    "InvalidRequest": to_many(error("InvalidRequest", 400)),
    "NotImplemented": to_many(error("NotImplemented", 501)),
    "501 without a body": to_many(Reply(501)),
    "501 with a proxy's page": to_many(page(501)),
    "405 MethodNotAllowed": to_many(error("MethodNotAllowed", 405)),
    "405 with a proxy's page": to_many(page(405)),
    "MissingArgument": to_many(error("MissingArgument", 400)),
    "InvalidDigest": to_many(error("InvalidDigest", 400)),
    "403 with a proxy's page": to_many(page(403)),
    "an empty 200 to many": to_many(Reply(200)),
    "a page in a 200 to many": to_many(page(200)),
    "an empty result": to_many(inside(lambda _keys: "")),
    "NotImplemented for each key": to_many(inside(lambda keys: failed("NotImplemented", *keys))),
    "NotImplemented, also key by key": to_deletes(error("NotImplemented", 501)),
    "key by key: NoSuchBucket": key_by_key(error("NoSuchBucket", 404)),
    "key by key: 404 without a body": key_by_key(Reply(404)),
    "key by key: an empty 200": key_by_key(Reply(200)),
    "key by key: a page in a 200": key_by_key(page(200)),
    "key by key: AccessDenied": key_by_key(error("AccessDenied", 403)),
    "key by key: silent": key_by_key(Reply(raw=b"", then="silence")),
    "key by key: 3 GB": key_by_key(Reply(body=_START, length=_HUGE, then="flood")),
}

PARTICULAR: dict[str, Way] = {
    "InternalError for absent keys": errs_for_absent,
    "conditions: 400": no_conditions(error("InvalidArgument", 400)),
    "conditions: 400 with a proxy's page": no_conditions(page(400)),
    "conditions: 405": no_conditions(error("MethodNotAllowed", 405)),
    "conditions: 501": no_conditions(error("NotImplemented", 501)),
}

FOLDERS: dict[str, Way] = {
    "lists: the asked prefix": to_folders("{}"),
    "lists: a prefix above": to_folders("wh/"),
    "lists: a prefix outside": to_folders("wh/sibling/"),
    "lists: a prefix twice": to_folders("{}data/", "{}data/"),
    "lists: a prefix that has no end": to_folders("{}x/"),
}

LISTINGS: dict[str, Way] = {
    **FOLDERS,
    "lists: the first page again": listing(again_from_the_start),
    "lists: the last key again": listing(once_more),
    "lists: an empty page and more": listing(
        lambda call, store: replace(
            listed(store, call.bucket, []),
            body=b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        )
    ),
    "lists: not in order": listing(
        lambda call, store: listed(store, call.bucket, [f"{call.keys[0]}b", f"{call.keys[0]}a"])
    ),
    "lists: keys of another prefix": listing(
        lambda call, store: listed(store, call.bucket, ["wh/sibling/data/x", "x0"])
    ),
    "lists: an empty 200": listing(lambda _call, _store: Reply()),
    "lists: a page in a 200": listing(lambda _call, _store: page(200)),
    "lists: XML of a proxy": listing(lambda _call, _store: Reply(body=b"<html><body>ok</body></html>")),
    "lists: another result": listing(lambda call, _store: Reply(body=result(deleted(*call.keys[:1])))),
    "lists: 405": listing(lambda _call, _store: error("MethodNotAllowed", 405)),
}

LIARS: dict[str, Way] = {
    "the root is confirmed and kept": keeps_the_root,
    "all is confirmed and kept": confirms_and_keeps,
}

READS: dict[str, Way] = {
    "reads: NoSuchBucket": to_kinds(error("NoSuchBucket", 404), "read", "look"),
    "reads: 404 without a body": to_kinds(Reply(404), "read", "look"),
    "reads: silent": to_kinds(Reply(raw=b"", then="silence"), "read", "look"),
    "reads: 3 GB in a 500": to_kinds(Reply(500, b"<Error>", length=_HUGE, then="flood"), "read", "look"),
    "reads: half an object": to_kinds(Reply(body=b"{", length=1_000, then="close"), "read", "look"),
    "reads: a date that is none": to_kinds(Reply(body=b"{}", headers={"Last-Modified": "soon"}), "read", "look"),
    "reads: an empty object": to_kinds(Reply(), "read", "look"),
}

WAYS: dict[str, Way] = {
    **WRONG_CODES,
    **WRONG_BUCKET,
    **WRONG_LISTS,
    **TORN,
    **LATE,
    **HUGE,
    **KEY_BY_KEY,
    **PARTICULAR,
    **LISTINGS,
    **LIARS,
    **READS,
}

# Ways in which an answer never ends; a client waits for as long as its settings say.
ENDLESS = frozenset({*LATE, *HUGE, "key by key: silent", "key by key: 3 GB", "reads: silent", "reads: 3 GB in a 500"})

# Ways of which a client that does what they demand notices nothing, and those of listings that no purge makes.
MET = frozenset({"MD5 demanded", *FOLDERS})
