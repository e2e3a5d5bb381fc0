"""Commits with an Idempotency-Key through the gateway, commits without one beside it: latency, and calls of DynamoDB.

    PYTHONPATH=functions:. python tests/bench/bench_gateway.py [--commits N] [--rounds N]

One local stack with the gateway. A commit sets a property of a table; rounds of direct commits and of commits with a
new key alternate, so that what else the machine does meets both. The catalog is the stand-in, which answers faster
than Polaris: what the gateway adds counts, not the ratio. Calls of DynamoDB are counted by operation in front of it.
"""

import json
import signal
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.processes.programs import LOOPBACK, LoopbackServer
from tests.bench.frame import options
from tests.integration.local.stack_process import StackProcess

_TABLE = {
    "name": "commits",
    "schema": {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}],
    },
}


class CountedCalls:
    """A proxy of DynamoDB that counts calls by operation and table."""

    def __init__(self, url: str) -> None:
        counted, lock = Counter[tuple[str, str]](), threading.Lock()

        class Counting(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                self.behind = HTTPConnection(urlsplit(url).netloc, timeout=60)

            def finish(self) -> None:
                self.behind.close()
                super().finish()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operation = self.headers["X-Amz-Target"].rpartition(".")[2]
                with lock:
                    counted[operation, str(json.loads(body).get("TableName", ""))] += 1
                self.behind.request("POST", self.path, body, dict(self.headers))
                answer = self.behind.getresponse()
                data = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in {"content-length", "transfer-encoding", "connection"}:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class' name
                """Print nothing."""

        self.calls = counted
        self.server = LoopbackServer(ThreadingHTTPServer((LOOPBACK, 0), Counting))


@contextmanager
def running(folder: Path) -> Iterator[tuple[dict[str, Any], CountedCalls]]:
    """A stack with the gateway whose DynamoDB is DynamoDB Local behind a counting proxy."""
    dynamodb = DynamoDbLocal(log=folder / "dynamodb.log").start()
    counted = CountedCalls(dynamodb.url)
    counted.server.start()
    stack = StackProcess(folder / "state", "--gateway", "--dynamodb-endpoint", counted.server.url)
    try:
        yield dict(stack.ready()), counted
    finally:
        stack.end(signal.SIGTERM)
        counted.server.stop()
        dynamodb.stop()


def table_of(stack: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Create a table; return its path below a catalog's base, and a caller's headers."""
    client_id, _, client_secret = stack["polaris_credential"].partition(":")
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
    with httpx.Client(base_url=f"{stack['polaris_url']}/v1/", timeout=60) as http:
        issued = http.post("oauth/tokens", data={**form, "scope": stack["polaris_scope"]}).raise_for_status().json()
        headers = {"Authorization": f"Bearer {issued['access_token']}", "Polaris-Realm": stack["realm"]}
        catalog = quote(stack["warehouse"], safe="")
        http.post(f"{catalog}/namespaces", json={"namespace": ["bench"]}, headers=headers).raise_for_status()
        http.post(f"{catalog}/namespaces/bench/tables", json=_TABLE, headers=headers).raise_for_status()
    return f"v1/{catalog}/namespaces/bench/tables/commits", headers


def seconds_of(
    url: str, headers: dict[str, str], count: int, send: Callable[[httpx.Client], httpx.Response]
) -> list[float]:
    """Return the seconds of each request."""
    taken = []
    with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
        for _ in range(count):
            begin = time.perf_counter()
            send(http).raise_for_status()
            taken.append(time.perf_counter() - begin)
    return taken


def commit_to(path: str, *, keyed: bool) -> Callable[[httpx.Client], httpx.Response]:
    def send(http: httpx.Client) -> httpx.Response:
        key = {"Idempotency-Key": str(uuid.uuid4())} if keyed else {}
        body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"n": uuid.uuid4().hex}}]}
        return http.post(path, json=body, headers=key)

    return send


def percentile(values: list[float], share: int) -> float:
    """Return a percentile in milliseconds."""
    return 1000 * statistics.quantiles(values, n=100, method="inclusive")[share - 1]


def show(taken: dict[str, list[float]]) -> None:
    """Print percentiles of each way, and their ratios to the first one."""
    first = next(iter(taken.values()))
    for name, values in taken.items():
        p50, p99 = percentile(values, 50), percentile(values, 99)
        ratios = f"{p50 / percentile(first, 50):5.2f} {p99 / percentile(first, 99):5.2f}"
        sys.stdout.write(
            f"{name:28} p50 {p50:7.1f} ms   p99 {p99:7.1f} ms   ratios {ratios}   {len(values)} requests\n"
        )
    sys.stdout.flush()


def of_commits(stack: dict[str, Any], counted: CountedCalls, path: str, headers: dict[str, str], given: Any) -> None:
    """Print the latencies of both ways and the calls of DynamoDB for a commit."""
    ways = {
        "direct, no key": (f"{stack['polaris_url']}/", False),
        "rule, no key": (f"{stack['gateway_url']}/", False),
        "gateway, key": (f"{stack['gateway_url']}/", True),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    calls: Counter[tuple[str, str]] = Counter()
    for number in range(given.rounds + 1):
        for name, (url, keyed) in ways.items():
            before = Counter(counted.calls)
            seconds = seconds_of(url, headers, given.commits, commit_to(path, keyed=keyed))
            if number == 0:
                continue  # the first round starts the function
            taken[name] += seconds
            if keyed:
                calls += Counter(counted.calls) - before
    show(taken)
    done = len(taken["gateway, key"])
    of_keys = {pair: number for pair, number in calls.items() if pair[1] == "delegation-idempotency"}
    each = ", ".join(f"{operation} {number / done:.2f}" for (operation, _), number in sorted(of_keys.items()))
    sys.stdout.write(f"DynamoDB calls for a commit with a key: {sum(of_keys.values()) / done:.2f} ({each})\n")


def main() -> None:
    given = options(__doc__, commits=100, rounds=5)
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as (stack, counted):
        path, headers = table_of(stack)
        of_commits(stack, counted, path, headers, given)


if __name__ == "__main__":
    main()
