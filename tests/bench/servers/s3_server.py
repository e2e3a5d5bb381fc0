"""The S3 operations that a purge needs, over HTTP and fast enough for a million deletes of 20 ms a call.

It runs as a separate process: `with S3Server(table) as server: server.url`. Objects are the files of the table's folder
and what is put; data files are only keys. Deletes are only recorded, so `reset` restores everything. With a `limit` of
keys per second, a call that asks for more is answered with 503 SlowDown, as S3 does for each partition of a prefix.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from xml.sax.saxutils import escape, unescape

from tests.bench.loads.big_table import BUCKET, TABLE, BigTable
from tests.bench.servers.tokens import Tokens

LATENCY = 0.02
BURST = 1_000.0  # keys that a store with a limit saves up
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
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

    def reset(self) -> None:
        self.put.clear()
        self.deleted_names.clear()
        self.calls = 0


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
            return _with_body(self.bucket.state())
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
            return self._listing(name.rstrip(b"/"), parameters)
        return self._object(method, name, headers)

    async def _delete_many(self, bucket: bytes, body: bytes) -> bytes:
        started = time.monotonic()
        keys = _KEY.findall(body)
        if not self.bucket.tokens.take(len(keys)):
            await asyncio.sleep(LATENCY)
            return _with_body(_SLOW_DOWN, b"HTTP/1.1 503 Slow Down\r\n")
        plain = [unescape(key.decode()).encode() for key in keys] if b"&" in body else keys
        self.bucket.delete([bucket + b"/" + key for key in plain])
        quiet = b"<Quiet>true</Quiet>" in body
        deleted = b"" if quiet else b"<Deleted><Key>%b</Key></Deleted>" % b"</Key></Deleted><Deleted><Key>".join(keys)
        await asyncio.sleep(max(0.0, LATENCY - (time.monotonic() - started)))
        return _with_body(b"<DeleteResult " + _NAMESPACE + b">" + deleted + b"</DeleteResult>")

    def _listing(self, bucket: bytes, parameters: dict[str, str]) -> bytes:
        start = bucket + b"/" + parameters.get("prefix", "").encode()
        after = parameters.get("continuation-token", "").encode()
        found = sorted(name for name in self.bucket.put if name.startswith(start) and name > after)
        page, more = found[:1_000], len(found) > 1_000
        keys = (escape(name.removeprefix(bucket + b"/").decode()).encode() for name in page)
        contents = b"".join(b"<Contents><Key>%b</Key><Size>0</Size></Contents>" % key for key in keys)
        following = escape(page[-1].decode()).encode() if more else b""
        token = b"<NextContinuationToken>%b</NextContinuationToken>" % following if more else b""
        head = b"<IsTruncated>%b</IsTruncated><KeyCount>%d</KeyCount>" % (b"true" if more else b"false", len(page))
        return _with_body(b"<ListBucketResult " + _NAMESPACE + b">" + head + contents + token + b"</ListBucketResult>")

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


def _with_body(body: bytes, head: bytes = _OK) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


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


class S3Server:
    """The server's process; a context manager."""

    def __init__(self, table: BigTable, limit: float = 0.0) -> None:
        self._table, self._limit = table, limit
        self.url = ""

    def __enter__(self) -> "S3Server":
        table = self._table
        numbers = (table.entries, table.manifests, self._limit)
        command = [sys.executable, __file__, str(table.folder), *map(str, numbers)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        self.url = f"http://127.0.0.1:{int(line)}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.terminate()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def state(self) -> tuple[int, int, int]:
        """Return (objects of the table left, other keys deleted, delete calls)."""
        return self._ask("state")

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
    options = argparse.ArgumentParser(description=f"Serve s3://{BUCKET}/{TABLE}.")
    options.add_argument("folder", type=Path)
    options.add_argument("entries", type=int)
    options.add_argument("manifests", type=int)
    options.add_argument("limit", type=float)
    given = options.parse_args()
    asyncio.run(serve(BigTable(given.folder, given.entries, given.manifests), given.limit))
