"""A fast store over HTTP that only deletes; every call takes 20 ms.

    PYTHONPATH=functions:. python tests/bench/delete_store.py

It has no limit, or a token bucket of keys per second, like each partition of a prefix in S3: a request that finds too
few tokens is answered with 503 SlowDown, or with `per_key` with 200 and SlowDown for the keys beyond the tokens. The
bucket starts empty. The store runs as a separate process: `with DeleteStore() as store: store.url`.
"""

import asyncio
import json
import re
import sys
import time
import urllib.parse
import urllib.request
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench.frame import ServerProcess
from tests.bench.servers.tokens import Tokens

LATENCY = 0.02
_KEY = re.compile(rb"<Key>([^<]*)</Key>")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_NAMESPACE = b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_HEAD = b'<?xml version="1.0" encoding="UTF-8"?>\n<DeleteResult ' + _NAMESPACE + b">"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_SLOW_KEY = b"<Error><Key>%b</Key><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@dataclass
class Rules:
    """`limit` is the keys per second, 0 for no limit; `burst` the keys that can be saved."""

    limit: float = 0.0
    burst: float = 0.0
    per_key: bool = False


@dataclass
class Counts:
    """The counts since the last reset, and the store's CPU seconds."""

    distinct: int = 0
    calls: int = 0
    refused_calls: int = 0
    refused_keys: int = 0
    cpu: float = 0.0


class Store:
    """The state that all connections share."""

    def __init__(self) -> None:
        self.reset(Rules())

    def reset(self, rules: Rules) -> None:
        self.rules, self.counts = rules, Counts()
        self._deleted_keys: set[bytes] = set()
        self._tokens = Tokens(rules.limit, rules.burst)
        self._cpu = time.process_time()

    def read(self) -> Counts:
        self.counts.distinct, self.counts.cpu = len(self._deleted_keys), time.process_time() - self._cpu
        return self.counts

    def delete(self, keys: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Return (deleted, refused)."""
        granted = self._tokens.take(len(keys), part=self.rules.per_key)
        deleted, refused = keys[:granted], keys[granted:]
        self._deleted_keys.update(deleted)
        self.counts.calls += 1
        self.counts.refused_calls += bool(refused)
        self.counts.refused_keys += len(refused)
        return deleted, refused


class Connection(asyncio.Protocol):
    """One client's connection, with sequential requests."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._buffer = bytearray()
        self._missing = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < self._missing:
            return
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end])
        length = _LENGTH.search(head)
        self._missing = end + 4 + (int(length[1]) if length else 0)
        if len(self._buffer) < self._missing:
            if b"100-continue" in head.lower() and len(self._buffer) == end + 4:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = bytes(self._buffer[end + 4 : self._missing])
        self._buffer.clear()
        self._missing = 0
        target = head.split(b" ", 2)[1]
        if target.startswith(b"/-/"):
            self._transport.write(_answer(b"200 OK", self._control(target.decode())))
        else:
            self._delete(body)

    def _control(self, target: str) -> bytes:
        path, _, query = target.partition("?")
        if path == "/-/reset":
            self._store.reset(Rules(**json.loads(urllib.parse.unquote(query))))
        return json.dumps(asdict(self._store.read())).encode()

    def _delete(self, body: bytes) -> None:
        deleted, refused = self._store.delete(_KEY.findall(body))
        if refused and not deleted:
            answer = _answer(b"503 Slow Down", _SLOW_DOWN)
        else:
            parts = [_HEAD]
            if deleted:
                parts += b"<Deleted><Key>", b"</Key></Deleted><Deleted><Key>".join(deleted), b"</Key></Deleted>"
            parts += (_SLOW_KEY % key for key in refused)
            answer = _answer(b"200 OK", b"".join(parts) + b"</DeleteResult>")
        asyncio.get_running_loop().call_later(LATENCY, self._transport.write, answer)


def _answer(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


class DeleteStore(ServerProcess):
    """The store's process; a context manager."""

    def __init__(self) -> None:
        super().__init__(__file__)

    def reset(self, rules: Rules) -> None:
        """Reset the state and apply these rules."""
        self._ask(f"reset?{urllib.parse.quote(json.dumps(asdict(rules)))}")

    def counts(self) -> Counts:
        return self._ask("counts")

    def _ask(self, what: str) -> Counts:
        with urllib.request.urlopen(f"{self.url}/-/{what}") as answer:
            return Counts(**json.loads(answer.read()))


async def serve() -> None:
    store = Store()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(store), "127.0.0.1", 0, backlog=256)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
