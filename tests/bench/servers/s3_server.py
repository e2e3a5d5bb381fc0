"""The S3 operations that a purge needs, over HTTP and fast enough for a million deletes of 20 ms a call.

It runs as a separate process: `with S3Server(table) as server: server.url`. Objects are the files of the table's folder
and what is put; data files are only keys. Deletes are only recorded, so `reset` restores everything. With a `limit` of
keys per second, a call that asks for more is answered with 503 SlowDown, as S3 does for each partition of a prefix.
"""

import asyncio
import json
import re
import sys
import time
import urllib.parse
import urllib.request
from bisect import bisect_left, bisect_right
from collections import Counter
from email.utils import formatdate
from functools import cached_property
from pathlib import Path
from xml.sax.saxutils import escape, unescape

from tests.bench.frame import ServerProcess, options
from tests.bench.loads.big_table import BUCKET, TABLE, BigTable
from tests.bench.servers.tokens import Tokens

LATENCY = 0.02
BURST = 1_000.0  # keys that a store with a limit saves up
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_TAGGED = re.compile(rb"<Key>([^<]*)</Key>\s*<ETag>([^<]*)</ETag>")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_NAMESPACE = b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_OK = b"HTTP/1.1 200 OK\r\n"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Bucket:
    """The state: the table's objects, and the keys that were put and deleted."""

    def __init__(self, table: BigTable, limit: float) -> None:
        self.tokens = Tokens(limit, BURST)
        self.folder = table.folder
        small = {path.relative_to(table.folder).as_posix() for path in table.folder.rglob("*") if path.is_file()}
        self.small = frozenset(f"{BUCKET}/{key}".encode() for key in small)
        self.data = frozenset(f"{BUCKET}/{key}".encode() for key in table.data_keys())
        self.put: dict[bytes, bytes] = {}
        self.deleted_names: set[bytes] = set()
        self.calls = 0
        self.requests: Counter[str] = Counter()

    @cached_property
    def names(self) -> list[bytes]:
        """Return all names of the table in order, for listings."""
        return sorted(self.small | self.data)

    def listed(self, start: bytes, after: bytes, most: int) -> list[bytes]:
        """Return up to `most` names that begin with `start` and are above `after`; what was put comes too."""
        found = [name for name in self.put if name.startswith(start) and name > after]
        at = max(bisect_right(self.names, after), bisect_left(self.names, start))
        for number in range(at, len(self.names)):
            name = self.names[number]
            if len(found) >= most or not name.startswith(start):
                break
            if name not in self.deleted_names:
                found.append(name)
        return sorted(found)[:most]

    def read(self, name: bytes) -> bytes | None:
        if name in self.put:
            return self.put[name]
        if name in self.small and name not in self.deleted_names:
            return (self.folder / name.decode().removeprefix(f"{BUCKET}/")).read_bytes()
        return None

    def delete(self, names: list[bytes]) -> None:
        self.calls += 1
        self.deleted_names.update(names)
        for name in names:
            if name in self.put:
                del self.put[name]

    def state(self) -> bytes:
        """Return how many of the table's objects are left, how many others were deleted, and the number of calls."""
        kept = self.small | self.data
        left, others = len(kept - self.deleted_names), len(self.deleted_names - kept)
        return b"%d %d %d" % (left, others, self.calls)

    def counted(self) -> bytes:
        """Return the numbers of requests by kind, as JSON."""
        return json.dumps(self.requests).encode()

    def reset(self) -> None:
        self.put.clear()
        self.deleted_names.clear()
        self.calls = 0
        self.requests.clear()


class Connection:
    """One client's connection, with sequential requests."""

    def __init__(self, bucket: Bucket, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.bucket, self.reader, self.writer = bucket, reader, writer

    async def serve(self) -> None:
        try:
            while True:
                head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ", 2)
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
                body = await self._body(headers)
                path, _, query = target.partition("?")
                self.writer.write(await self._answer(method, path, query, headers, body))
                await self.writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.writer.close()

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("expect", "").lower() == "100-continue":
            self.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readuntil(b"\r\n")
        else:
            body = await self.reader.readexactly(int(headers.get("content-length") or 0))
        return _unchunked(body) if "x-amz-decoded-content-length" in headers else body

    async def _answer(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> bytes:
        name = urllib.parse.unquote_to_bytes(path)[1:]
        parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if name.startswith(b"-/"):
            if name == b"-/reset":
                self.bucket.reset()
            return _with_body(self.bucket.counted() if name == b"-/requests" else self.bucket.state())
        self.bucket.requests["LIST" if "list-type" in parameters else method] += 1
        if method == "POST" and "delete" in parameters:
            return await self._delete_many(name.rstrip(b"/"), body)
        if method == "DELETE":
            await asyncio.sleep(LATENCY)
            if "if-match" not in headers:
                self.bucket.delete([name])
            return b"HTTP/1.1 204 No Content\r\n\r\n"
        if method == "PUT":
            self.bucket.put[name] = body
            return _OK + b'ETag: "0"\r\nContent-Length: 0\r\n\r\n'
        if "versioning" in parameters:
            return _with_body(b"<VersioningConfiguration " + _NAMESPACE + b"/>")
        if "list-type" in parameters:
            await asyncio.sleep(LATENCY)
            return self._listing(name.rstrip(b"/"), parameters)
        return self._object(method, name, headers)

    async def _delete_many(self, bucket: bytes, body: bytes) -> bytes:
        started = time.monotonic()
        keys = _KEY.findall(body)
        if not self.bucket.tokens.take(len(keys)):
            await asyncio.sleep(LATENCY)
            return _with_body(_SLOW_DOWN, b"HTTP/1.1 503 Slow Down\r\n")
        if b"<ETag>" in body and (answer := _refused(body)) is not None:
            await asyncio.sleep(LATENCY)
            return _with_body(answer)
        plain = [unescape(key.decode()).encode() for key in keys] if b"&" in body else keys
        self.bucket.delete([bucket + b"/" + key for key in plain])
        quiet = b"<Quiet>true</Quiet>" in body
        deleted = b"" if quiet else b"<Deleted><Key>%b</Key></Deleted>" % b"</Key></Deleted><Deleted><Key>".join(keys)
        await asyncio.sleep(max(0.0, LATENCY - (time.monotonic() - started)))
        return _with_body(b"<DeleteResult " + _NAMESPACE + b">" + deleted + b"</DeleteResult>")

    def _listing(self, bucket: bytes, parameters: dict[str, str]) -> bytes:
        """List a page; folders are found by a jump over each, so few requests need few of the names."""
        start = bucket + b"/" + parameters.get("prefix", "").encode()
        token = parameters.get("continuation-token", "") or parameters.get("start-after", "")
        after = bucket + b"/" + token.encode()
        delimiter, most = parameters.get("delimiter", "").encode(), int(parameters.get("max-keys", "1000"))
        objects: list[bytes] = []
        folders: list[bytes] = []
        while len(objects) + len(folders) <= most:
            some = self.bucket.listed(start, after, 1 if delimiter else most + 1)
            if not some:
                break
            end = some[0].find(delimiter, len(start)) if delimiter else -1
            if end >= 0:
                folders.append(some[0][: end + 1])
                after = folders[-1] + b"\xff"
            else:
                objects += some
                after = some[-1]
            if not delimiter:
                break
        more = len(objects) + len(folders) > most
        return _with_body(_page(bucket, objects[:most], folders[: most - len(objects)] if more else folders, more))

    def _object(self, method: str, name: bytes, headers: dict[str, str]) -> bytes:
        data = self.bucket.read(name)
        if data is None and method == "HEAD" and name in self.bucket.data and name not in self.bucket.deleted_names:
            data = b""
        if data is None:
            code = b"<Error><Code>NoSuchKey</Code><Message>no such key</Message></Error>"
            return _with_body(b"" if method == "HEAD" else code, b"HTTP/1.1 404 Not Found\r\n")
        facts = b'ETag: "0"\r\nLast-Modified: Sat, 21 Nov 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n'
        if method == "HEAD":
            return _OK + facts + b"Content-Length: %d\r\n\r\n" % len(data)
        part = _RANGE.match(headers.get("range", ""))
        if part is None:
            return _with_body(data, _OK + facts)
        first = int(part[1])
        last = min(int(part[2]) if part[2] else len(data) - 1, len(data) - 1)
        where = b"Content-Range: bytes %d-%d/%d\r\n" % (first, last, len(data))
        return _with_body(data[first : last + 1], b"HTTP/1.1 206 Partial Content\r\n" + facts + where)


def _refused(body: bytes) -> bytes | None:
    """Return the answer to a delete whose conditions do not hold; all objects have one ETag."""
    others = [key for key, tag in _TAGGED.findall(body) if unescape(tag.decode(), {"&quot;": '"'}) != '"0"']
    if not others:
        return None
    error = b"<Error><Key>%b</Key><Code>PreconditionFailed</Code><Message>another ETag</Message></Error>"
    return b"<DeleteResult " + _NAMESPACE + b">" + b"".join(error % key for key in others) + b"</DeleteResult>"


def _page(bucket: bytes, objects: list[bytes], folders: list[bytes], more: bool) -> bytes:
    def key(name: bytes) -> bytes:
        return escape(name[len(bucket) + 1 :].decode()).encode()

    contents = b"".join(
        b"<Contents><Key>%b</Key><LastModified>2026-11-21T00:00:00.000Z</LastModified><ETag>&quot;0&quot;</ETag>"
        b"<Size>0</Size></Contents>" % key(name)
        for name in objects
    )
    prefixes = b"".join(b"<CommonPrefixes><Prefix>%b</Prefix></CommonPrefixes>" % key(name) for name in folders)
    token = b"<NextContinuationToken>%b</NextContinuationToken>" % key(objects[-1]) if more and objects else b""
    counts = (b"true" if more else b"false", len(objects) + len(folders))
    head = b"<IsTruncated>%b</IsTruncated><KeyCount>%d</KeyCount>" % counts
    return b"<ListBucketResult " + _NAMESPACE + b">" + head + contents + prefixes + token + b"</ListBucketResult>"


def _with_body(body: bytes, head: bytes = _OK) -> bytes:
    date = formatdate(usegmt=True).encode()
    return head + b"Date: %b\r\nContent-Length: %d\r\n\r\n" % (date, len(body)) + body


def _unchunked(body: bytes) -> bytes:
    """Decode AWS chunks: `size;chunk-signature=…` CRLF data CRLF, the last of size 0."""
    out, at = b"", 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].partition(b";")[0], 16)
        if not size:
            return out
        out += body[end + 2 : end + 2 + size]
        at = end + 4 + size


class S3Server(ServerProcess):
    """The server's process; a context manager."""

    def __init__(self, table: BigTable, limit: float = 0.0) -> None:
        super().__init__(__file__, table.folder, table.entries, table.manifests, table.orphans_every, limit)

    def state(self) -> tuple[int, int, int]:
        """Return (objects of the table left, other keys deleted, delete calls)."""
        return self._ask("state")

    def requests(self) -> dict[str, int]:
        """Return the number of requests by method since `reset`; listings are LIST."""
        with urllib.request.urlopen(f"{self.url}/-/requests") as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def reset(self) -> None:
        """Restore everything that was deleted."""
        self._ask("reset")

    def _ask(self, what: str) -> tuple[int, int, int]:
        with urllib.request.urlopen(f"{self.url}/-/{what}") as answer:
            left, others, calls = answer.read().split()
        return int(left), int(others), int(calls)


async def serve(table: BigTable, limit: float) -> None:
    bucket = Bucket(table, limit)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Connection(bucket, reader, writer).serve()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 20)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    given = options(f"Serve s3://{BUCKET}/{TABLE}.", "folder", "entries", "manifests", "orphans_every", "limit")
    served = BigTable(Path(given.folder), int(given.entries), int(given.manifests), int(given.orphans_every))
    asyncio.run(serve(served, float(given.limit)))
