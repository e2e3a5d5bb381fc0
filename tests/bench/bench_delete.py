"""Deletes per second over HTTP: without a limit, compared with boto3, then by 1 and 4 processes with a limit.

    PYTHONPATH=functions:. python tests/bench/bench_delete.py [--rounds N] [--limit N] [--keys N] [--shared-keys N]
                                                              [--burst N] [--per-key]

`Deleter` and `S3ObjectStore` run with their defaults in separate processes, chunk after chunk like an executor or,
without a limit, also with all keys in one stream. The store is `delete_store` (20 ms a call); its CPU time and maximum
are printed too. Figures are medians of several rounds, ours and boto3's in turns. A limited store starts without saved
tokens. The time is from the first batch to the last answer, so it includes finding the rate.
"""

import http.client
import multiprocessing
import os
import statistics
import threading
import time
import urllib.parse
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import boto3
from botocore.config import Config

from delegation.iceberg.paths import TableFile
from delegation.removal.purge.requests import PurgeSettings
from delegation.storage.credentials import S3Settings
from delegation.storage.deleter import Deleter
from delegation.storage.s3 import S3ObjectStore
from tests.bench.frame import load, options
from tests.bench.servers.delete_store import Counts, DeleteStore, Rules
from tests.kit.printing import print_now

BUCKET = "bench"
_CONTEXT = multiprocessing.get_context("spawn")


def keys(part: int, first: int, count: int) -> list[str]:
    """Return keys as long as Iceberg's."""
    return [
        f"wh/db/table/data/part={part}/{number:09d}-0123456789abcdef-00001.parquet" for number in range(first, count)
    ]


def ours(url: str, part: int, parts: int, count: int) -> None:
    """Delete like one executor: chunks of the plan's size, starting with its share of the rate."""
    settings = PurgeSettings()
    policy = replace(settings.delete, rate=replace(settings.delete.rate, start=settings.delete.rate.start / parts))
    store = S3ObjectStore(settings=S3Settings(endpoint=url, region="us-east-1", path_style=True))
    chunks = (
        (
            first,
            [
                TableFile(f"s3://{BUCKET}/{key}", 8, 1)
                for key in keys(part, first, min(first + settings.chunk_paths, count))
            ],
        )
        for first in range(0, count, settings.chunk_paths)
    )
    with Deleter(store, policy) as deleter:
        for _ in deleter.delete_each(chunks, lambda: None):
            pass


def stream(url: str, count: int) -> None:
    """Delete all keys as one chunk, with our defaults."""
    store = S3ObjectStore(settings=S3Settings(endpoint=url, region="us-east-1", path_style=True))
    with Deleter(store, PurgeSettings().delete) as deleter:
        deleter.delete((TableFile(f"s3://{BUCKET}/{key}", 8, 1) for key in keys(0, 0, count)), lambda: None)


def boto(url: str, threads: int, validation: bool, count: int) -> None:
    """Delete with boto3, 1,000 keys a call, with or without botocore's `validation` of parameters."""
    config = Config(max_pool_connections=threads, parameter_validation=validation)
    client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", config=config)

    def delete(first: int) -> None:
        objects = [{"Key": key} for key in keys(0, first, first + 1_000)]
        answer = client.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})  # type: ignore[typeddict-item]
        if len(answer["Deleted"]) != len(objects):
            raise SystemExit("the store did not delete them all")

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(delete, range(0, count, 1_000)))


def raw(url: str, threads: int, count: int) -> None:
    """Send prepared requests and ignore the answers, to find the store's maximum."""
    objects = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys(0, 0, 1_000))
    body, address = f"<Delete>{objects}</Delete>".encode(), urllib.parse.urlsplit(url)

    def post(calls: int) -> None:
        connection = http.client.HTTPConnection(address.hostname or "", address.port)
        for _ in range(calls):
            connection.request("POST", f"/{BUCKET}?delete", body)
            connection.getresponse().read()
        connection.close()

    workers = [threading.Thread(target=post, args=(count // 1_000 // threads,)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _child(ready: Any, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    ready.wait()
    work(*arguments)


def measure(store: DeleteStore, rules: Rules, jobs: list[tuple[Any, ...]]) -> tuple[float, Counts]:
    """Return the seconds from the start to the last process's end, and the store's counts; jobs are (work, *args)."""
    ready = _CONTEXT.Barrier(len(jobs) + 1)
    workers = [_CONTEXT.Process(target=_child, args=(ready, work, tuple(rest))) for work, *rest in jobs]
    for worker in workers:
        worker.start()
    store.reset(rules)
    ready.wait()
    store.reset(rules)
    started = time.monotonic()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - started
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a process failed")
    return seconds, store.counts()


def unthrottled(store: DeleteStore, rounds: int, count: int) -> None:
    contenders = {
        "ours, one stream": [(stream, store.url, count)],
        "ours, chunks of 10,000": [(ours, store.url, 0, 1, count)],
        "boto3, 8 threads": [(boto, store.url, 8, True, count // 2)],
        "boto3, 32 threads": [(boto, store.url, 32, True, count // 2)],
        "boto3, 16 threads, no validation": [(boto, store.url, 16, False, count // 2)],
        "the store itself": [(raw, store.url, 16, count)],
    }
    found: dict[str, list[tuple[float, Counts]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, jobs in contenders.items():
            found[name].append(measure(store, Rules(), jobs))
    rates = {
        name: statistics.median(jobs[0][-1] / seconds for seconds, _ in found[name])
        for name, jobs in contenders.items()
    }
    for name, rate in rates.items():
        cpu = statistics.median(counts.cpu / seconds for seconds, counts in found[name])
        left = max(contenders[name][0][-1] - counts.distinct for _, counts in found[name])
        rest = "" if name == "the store itself" else f", {left} keys left"
        print_now(f"unthrottled, {name}: {rate:,.0f} keys/s (store {cpu:.0%} of a core{rest})")
    best = max(rate for name, rate in rates.items() if name.startswith("boto3"))
    print_now(f"one stream / the fastest boto3: {rates['ours, one stream'] / best:.2f}")


def throttled(store: DeleteStore, rules: Rules, rounds: int, processes: int, count: int) -> None:
    each = count // processes
    jobs = [(ours, store.url, part, processes, each) for part in range(processes)]
    found = [measure(store, rules, jobs) for _ in range(rounds)]
    shares = [processes * each / seconds / rules.limit for seconds, _ in found]
    left = max(processes * each - counts.distinct for _, counts in found)
    refused = statistics.median(counts.refused_keys / (processes * each) for _, counts in found)
    cpu = statistics.median(counts.cpu / seconds for seconds, counts in found)
    print_now(
        f"{processes} process(es), {rules.limit:,.0f} keys/s, burst {rules.burst:,.0f}: "
        f"{statistics.median(shares):.1%} of the limit ({', '.join(f'{share:.1%}' for share in shares)}), "
        f"{left} keys left, "
        f"{refused:.1%} refused on the way (store {cpu:.0%} of a core)"
    )


def main() -> None:
    given = options(
        __doc__,
        rounds=3,
        limit=3_500.0,
        burst=1_000.0,
        per_key=False,
        keys=70_000,
        shared_keys=140_000,
        free_keys=1_000_000,
    )
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
    rules = Rules(given.limit, given.burst, given.per_key)
    with DeleteStore() as store:
        if given.free_keys:
            unthrottled(store, given.rounds, given.free_keys)
        for processes, count in ((1, given.keys), (4, given.shared_keys)):
            if count:
                throttled(store, rules, given.rounds, processes, count)
    print_now(f"load average {load()} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
