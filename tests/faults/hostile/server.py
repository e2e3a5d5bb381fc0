"""An S3 store over HTTP that is sound, or wrong in the way that a test sets.

`HostileStore.way` sees each call to the bucket of the tables before the store does. It returns None for the sound
answer, or another `Reply`, and may delete objects or not. Other buckets, such as that of the plans, are always sound.
"""

import base64
import hashlib
import re
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

BUCKET = "lake"
NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_SPACE = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
# An answer without end stops here, far beyond what a client may accept.
MOST_SENT = 96 * 1024 * 1024


@dataclass(frozen=True)
class Call:
    """A call to the store: `number` counts those of the same kind since the way was set, from 1.

    `kind` is delete (of many keys), single (delete), probe, read, look, list or versioning. The `keys` of a listing are
    its prefix, after which key it begins, and its delimiter.
    """

    kind: str
    bucket: str
    keys: tuple[str, ...]
    number: int
    md5: bool = False

    @property
    def deletes(self) -> bool:
        return self.kind in {"delete", "single"}


@dataclass(frozen=True)
class Reply:
    """An answer: `raw` replaces all of it. `length` is stated instead of the body's.

    `then` is what follows the body: `close` ends the connection; `silence` waits until the client ends it; `drip` and
    `flood` send white space, byte by byte or as fast as possible, until the client ends it.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    length: int | None = None
    raw: bytes | None = None
    then: str = ""


Way = Callable[[Call, "HostileStore"], Reply | None]


def result(inside: str) -> bytes:
    """Return the body of an answer to DeleteObjects."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult {NAMESPACE}>{inside}</DeleteResult>'.encode()


def deleted(*keys: str) -> str:
    return "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)


def failed(code: str, *keys: str) -> str:
    return "".join(f"<Error><Key>{escape(key)}</Key><Code>{code}</Code><Message>no</Message></Error>" for key in keys)


def error(code: str, status: int, more: str = "") -> Reply:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>no</Message>{more}</Error>'
    return Reply(status, body.encode())


class HostileStore:
    """The store's server, on a thread; a context manager. `objects` are its content by bucket and key."""

    def __init__(
        self,
        objects: dict[tuple[str, str], bytes],
        modified: Mapping[tuple[str, str], int] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.objects = objects
        self.modified = modified or {}
        self.clock = clock
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.set(None)

    def __enter__(self) -> "HostileStore":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def set(self, way: Way | None) -> None:
        """Be wrong in this way from now on, or sound with None; counts begin again."""
        with self._lock:
            self._way, self.page = way, 1_000
            self._calls: Counter[str] = Counter()
            self.wrong = 0
            self.sent = 0
            self.removed: set[tuple[str, str]] = set()

    def listing(self, bucket: str, prefix: str, after: str = "", delimiter: str = "") -> Reply:
        """Return the sound answer to a listing."""
        with self._lock:
            keys = sorted(key for where, key in self.objects if where == bucket and key.startswith(prefix))
        below = [(key, *key.removeprefix(prefix).partition("/")) for key in keys if key > after]
        folders = dict.fromkeys(f"{prefix}{name}/" for _, name, slash, _ in below if slash and delimiter)
        return listed(self, bucket, [key for key, _, slash, _ in below if not (slash and delimiter)], folders)

    def remove(self, bucket: str, *keys: str) -> None:
        with self._lock:
            for key in keys:
                if self.objects.pop((bucket, key), None) is not None:
                    self.removed.add((bucket, key))

    def stated(self, at: tuple[str, str]) -> dict[str, str]:
        """Return the headers of an object."""
        written = formatdate(self.modified.get(at, 0), usegmt=True)
        return {"ETag": f'"{hashlib.md5(self.objects[at]).hexdigest()}"', "Last-Modified": written}

    def unchanged(self, at: tuple[str, str], etag: str | None) -> bool:
        """Return whether an object may be deleted with an ETag as the condition, None without a condition."""
        return etag is None or (at in self.objects and self.stated(at)["ETag"] == etag)

    def answer(self, kind: str, bucket: str, keys: tuple[str, ...], *, md5: bool = False) -> Reply | None:
        """Return the wrong answer to a call, None for the sound one."""
        if bucket != BUCKET:
            return None
        with self._lock:
            self._calls[kind] += 1
            call, way = Call(kind, bucket, keys, self._calls[kind], md5), self._way
        reply = None if way is None else way(call, self)
        self.wrong += reply is not None
        return reply


def listed(store: HostileStore, bucket: str, found: Sequence[str], folders: Iterable[str] = ()) -> Reply:
    """Return a page of a listing: at most `store.page` of the keys, and the prefixes."""
    inside = "<EncodingType>url</EncodingType>"
    most = store.page if bucket == BUCKET else len(found)
    inside += f"<IsTruncated>{'true' if len(found) > most else 'false'}</IsTruncated>"
    for key in found[:most]:
        data = store.objects.get((bucket, key), b"")
        written = datetime.fromtimestamp(store.modified.get((bucket, key), 0), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        inside += (
            f"<Contents><Key>{urllib.parse.quote(key)}</Key><LastModified>{written}</LastModified>"
            f"<ETag>&quot;{hashlib.md5(data).hexdigest()}&quot;</ETag><Size>{len(data)}</Size></Contents>"
        )
    inside += "".join(f"<CommonPrefixes><Prefix>{urllib.parse.quote(one)}</Prefix></CommonPrefixes>" for one in folders)
    body = f"<ListBucketResult {NAMESPACE}>{inside}</ListBucketResult>".encode()
    return Reply(body=body, headers={"Date": formatdate(store.clock(), usegmt=True)})


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, store: HostileStore) -> None:
        self.store = store
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        # HTTPServer would look up the name of this host.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that end their connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body leave together, and at once.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def handle_expect_100(self) -> bool:
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _take(self) -> None:
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, _, query = self.path.partition("?")
        self._parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        self._bucket, _, self._key = urllib.parse.unquote(path).lstrip("/").partition("/")
        self._at = (self._bucket, self._key)

    def do_POST(self) -> None:
        self._take()
        store = self.server.store
        keys = tuple(one.text or "" for one in ElementTree.fromstring(self._body).iter(f"{_SPACE}Key"))
        digest = base64.b64encode(hashlib.md5(self._body).digest()).decode()
        md5 = self.headers.get("Content-MD5") == digest
        reply = store.answer("delete", self._bucket, keys, md5=md5)
        if reply is None:
            etags = [
                one.findtext(f"{_SPACE}ETag") for one in ElementTree.fromstring(self._body).iter(f"{_SPACE}Object")
            ]
            done = [key for key, etag in zip(keys, etags, strict=True) if store.unchanged((self._bucket, key), etag)]
            store.remove(self._bucket, *done)
            refused = [key for key in keys if key not in done]
            reply = Reply(body=result(deleted(*done) + failed("PreconditionFailed", *refused)))
        self._send(reply)

    def do_DELETE(self) -> None:
        self._take()
        store, probe = self.server.store, "If-Match" in self.headers
        reply = store.answer("probe" if probe else "single", self._bucket, (self._key,))
        if reply is None and not store.unchanged(self._at, self.headers.get("If-Match")):
            reply = error("PreconditionFailed", 412)
        elif reply is None:
            store.remove(self._bucket, self._key)
            reply = Reply(204)
        self._send(reply)

    def do_PUT(self) -> None:
        self._take()
        self.server.store.objects[self._at] = self._body
        self._send(Reply(headers={"ETag": '"0"'}))

    def do_HEAD(self) -> None:
        self._take()
        reply = self.server.store.answer("look", self._bucket, (self._key,))
        if reply is None:
            data = self.server.store.objects.get(self._at)
            reply = Reply(404) if data is None else Reply(length=len(data), headers=self.server.store.stated(self._at))
        self._send(reply)

    def do_GET(self) -> None:
        self._take()
        if "versioning" in self._parameters:
            found = self.server.store.answer("versioning", self._bucket, ())
            self._send(found or Reply(body=f"<VersioningConfiguration {NAMESPACE}/>".encode()))
        elif "list-type" in self._parameters:
            prefix, after = self._parameters.get("prefix", ""), self._parameters.get("start-after", "")
            asked = (prefix, after, self._parameters.get("delimiter", ""))
            self._send(
                self.server.store.answer("list", self._bucket, asked) or self.server.store.listing(self._bucket, *asked)
            )
        else:
            kind = "look" if "Range" in self.headers else "read"
            self._send(self.server.store.answer(kind, self._bucket, (self._key,)) or self._object())

    def _object(self) -> Reply:
        data = self.server.store.objects.get(self._at)
        if data is None:
            return error("NoSuchKey", 404)
        part = _RANGE.match(self.headers.get("Range", ""))
        if part is None:
            return Reply(body=data)
        if int(part[1]) >= len(data):
            return error("InvalidRange", 416)
        body = data[int(part[1]) : int(part[2] or len(data)) + 1]
        return Reply(206, body, {"Content-Range": f"bytes {part[1]}-{part[2]}/{len(data)}"})

    def _send(self, reply: Reply) -> None:
        try:
            if reply.raw is not None:
                self.wfile.write(reply.raw)
            else:
                self.send_response_only(reply.status)
                for name, value in ({"Content-Type": "application/xml"} | dict(reply.headers)).items():
                    self.send_header(name, value)
                if "Transfer-Encoding" not in reply.headers and reply.status != 204:
                    length = len(reply.body) if reply.length is None else reply.length
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(reply.body)
            self.wfile.flush()
            self._follow(reply.then)
        except OSError:
            self.close_connection = True
        if reply.raw is not None or reply.then:
            self.close_connection = True

    def _follow(self, then: str) -> None:
        store = self.server.store
        if then == "silence":
            self.connection.recv(1)
        while then == "drip" and store.sent < MOST_SENT:
            self.wfile.write(b" ")
            self.wfile.flush()
            store.sent += 1
            threading.Event().wait(0.02)
        while then == "flood" and store.sent < MOST_SENT:
            store.sent += self.connection.send(b" " * 65_536)
