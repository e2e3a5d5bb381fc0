"""The short benchmarks: CPU time of our work and of a yardstick beside it, in turns, within one run.

The ratio of the two says more than either: another processor, or a busy neighbour, slows both. Each figure is the
least of several rounds, because what else the machine does can only add to it.
"""

import gzip
import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import fastavro
import h11

from delegation.iceberg.avro import manifests as avro
from delegation.removal.chunks import ChunkWriter, Phase, read_chunk
from delegation.removal.index import Sorter
from delegation.storage.deleter import WaitingBatches
from delegation.storage.locations import canonical_all
from delegation.storage.memory import MemoryPlanStore
from infra.environment.functions import EVERY_FUNCTION
from tests.bench.bench_cold import SOURCES, Interpreter
from tests.bench.loads.manifests import PROJECTED, manifest
from tests.counts.works import KEYS, ROWS, AnsweringStore, accepted, forwarded, plain_client
from tests.paths import ROOT

Work = Callable[[], float]
"""Does something once and returns its CPU seconds."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`prepare` returns our work and the yardstick's; the least of `rounds` of each counts."""

    yardstick: str
    prepare: Callable[[], tuple[Work, Work]]
    rounds: int


@dataclass(frozen=True, slots=True)
class Figure:
    """CPU milliseconds of our work and of the yardstick."""

    yardstick: str
    cpu_ms: float
    yardstick_ms: float

    @property
    def ratio(self) -> float:
        """Our CPU time as a multiple of the yardstick's."""
        return self.cpu_ms / self.yardstick_ms


def run(benchmark: Benchmark) -> Figure:
    """Return the figure of a benchmark; the first round of each is not counted.

    It is of the least times, or of the round with the middle ratio if that is less: what disturbs only some rounds
    adds to the one, what lasts and slows both alike to neither, and a slower commit to both.
    """
    ours, other = benchmark.prepare()
    pairs = sorted([(ours(), other()) for _ in range(benchmark.rounds + 1)][1:], key=_ratio)
    least = (min(mine for mine, _ in pairs), min(theirs for _, theirs in pairs))
    mine, theirs = min(least, pairs[len(pairs) // 2], key=_ratio)
    return Figure(benchmark.yardstick, round(mine * 1_000, 3), round(theirs * 1_000, 3))


def _ratio(pair: tuple[float, float]) -> float:
    return pair[0] / pair[1]


def steady(benchmark: Benchmark) -> Figure:
    """Return the figure with the middle ratio of three, to compare later ones with."""
    return sorted((run(benchmark) for _ in range(3)), key=lambda figure: figure.ratio)[1]


def timed(work: Callable[[], object]) -> Work:
    """Return work that is timed in this process."""

    def once() -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    return once


def child(*arguments: str) -> Work:
    """Return a command of this Python that is timed with all that its process does."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "functions"), "HOME": os.environ.get("HOME", "/")}

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], env=env, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return once


def mixed() -> None:
    """Do what services do, in code that no commit of ours changes: JSON, hashes, dictionaries and strings."""
    rows = [{"path": path, "rank": rank, "size": size} for path, rank, size in ROWS]
    for _ in range(4):
        text = json.dumps(rows)
        found = {one["path"].partition("/data/")[2]: one["size"] for one in json.loads(text)}
        hashlib.sha256("".join(sorted(found)).encode()).hexdigest()


def decode() -> tuple[Work, Work]:
    """Read 5,000 entries of a manifest; fastavro reads the same four fields."""
    data = manifest(1, 5_000, 12, "deflate")

    def ours() -> int:
        return sum(len(batch) for batch in avro.read_paths(data, "m.avro"))

    for _ in range(10):
        ours()
    return timed(ours), timed(lambda: sum(1 for _ in fastavro.reader(io.BytesIO(data), PROJECTED)))


def plan() -> tuple[Work, Work]:
    """Sort and write the chunks of 20,000 paths and read them; the yardstick sorts, and packs the same as JSON."""
    rows = [(f"{path}-{part:03d}", rank, size) for path, rank, size in ROWS for part in range(20)][::-1]

    def ours() -> None:
        store = MemoryPlanStore()
        canonical_all([path for path, _, _ in rows])
        with Sorter(run_records=5_000) as sorter:
            sorter.extend(rows)
            writer = ChunkWriter(store, "plan", Phase.DATA, chunk_paths=10_000)
            for batch in sorter.batches():
                writer.extend(batch)
            writer.flush()
        for chunk in writer.chunks:
            read_chunk(store, "plan", chunk)

    def other() -> None:
        packed = gzip.compress(json.dumps(sorted(rows)).encode(), compresslevel=5)
        json.loads(gzip.decompress(packed))

    return timed(ours), timed(other)


def delete() -> tuple[Work, Work]:
    """Queue, delete and record 5 × 1,000 keys; boto3 deletes as many, with its validation off."""
    ours, other = AnsweringStore(), plain_client()
    files = [_File(path, size) for path, _, size in ROWS]
    objects = {"Objects": [{"Key": key} for key in KEYS]}

    def delete_ours() -> None:
        for _ in range(5):
            waiting = WaitingBatches([("chunk", iter(files))])
            while waiting:
                batch = waiting.take(1_000, 0.0)
                batch.deleted(ours.delete(batch.bucket, tuple(batch.sizes)))
            list(waiting.finished())

    def delete_other() -> None:
        for _ in range(5):
            answer = other.delete_objects(Bucket="bench", Delete=objects)
            if len(answer["Deleted"]) != len(KEYS):
                raise SystemExit("not all keys were confirmed")

    return timed(delete_ours), timed(delete_other)


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int


def cold(handler: str) -> tuple[Work, Work]:
    """Import a handler in a new process, from the checkout; and boto3."""
    interpreter = Interpreter(SOURCES)
    module = EVERY_FUNCTION[handler].module
    return lambda: interpreter.cpu_seconds(module), lambda: interpreter.cpu_seconds("boto3")


def command(*words: str) -> tuple[Work, Work]:
    """Run a command of `delegation`; import typer."""
    code = f"import sys; sys.argv = ['delegation', *{words!r}]; from delegation.cli import start; start()"
    return child("-c", code), child("-c", "import typer")


def gateway() -> tuple[Work, Work]:
    """Forward 1,000 requests through the gateway, in memory."""
    forward = forwarded()
    return timed(lambda: [forward() for _ in range(1_000)]), timed(parsed)


def parsed() -> None:
    """Send 100 requests through h11: like the gateway, many small steps of the interpreter and no long one in C."""
    body = b'{"requirements": [], "updates": []}'
    headers = [("Host", "gateway"), ("Authorization", "Bearer x"), ("Content-Length", str(len(body)))]
    for _ in range(100):
        client, server = h11.Connection(h11.CLIENT), h11.Connection(h11.SERVER)
        request = h11.Request(method="POST", target="/v1/lake/namespaces/ns/tables/t", headers=headers)
        server.receive_data((client.send(request) or b"") + (client.send(h11.Data(data=body)) or b""))
        while server.next_event() is not h11.NEED_DATA and server.their_state is not h11.DONE:
            pass


def tasks() -> tuple[Work, Work]:
    """Accept a request with a key, and store and dispatch its task, in memory."""
    accept = accepted(2 * TASK_ROUNDS)
    return timed(accept), timed(mixed)


TASK_ROUNDS: Final = 15
BENCHMARKS: Final[dict[str, Benchmark]] = {
    "decode": Benchmark("fastavro", decode, 15),
    "plan": Benchmark("sorted, json and gzip", plan, 10),
    "delete": Benchmark("boto3 without validation", delete, 20),
    "cold start: api": Benchmark("boto3", lambda: cold("api"), 7),
    "cold start: authorizer": Benchmark("boto3", lambda: cold("authorizer"), 7),
    "cold start: run_inline": Benchmark("boto3", lambda: cold("run_inline"), 7),
    "command: --help": Benchmark("import typer", lambda: command("--help"), 10),
    "command: tasks list --help": Benchmark("import typer", lambda: command("tasks", "list", "--help"), 10),
    "gateway: forward": Benchmark("h11", gateway, 20),
    "tasks": Benchmark("json and hashes", tasks, TASK_ROUNDS),
}
