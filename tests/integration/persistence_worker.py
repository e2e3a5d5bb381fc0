"""A process that commits from several threads to one reference, and says what it began and what it was answered.

Its DynamoDB client loses answers: of some swaps before they are sent, of some after they are applied, and some arrive
later than their time-out. Run by test_persistence_linearizability.py, which kills it at times.
"""

import itertools
import json
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.exceptions import ReadTimeoutError

from delegation.persistence.backends.dynamodb import Calls, DynamoDbBackend
from delegation.persistence.catalogs.process import OWN_TYPES, PersistenceProcess
from delegation.persistence.commits.committer import CommitRetries, Committer
from delegation.persistence.errors import BackendUnavailable, CommitContended, CommitUnknown
from delegation.persistence.objects.store import CatalogStore
from delegation.persistence.objects.types import ObjectTypes
from tests.contract.persistence.backends import dynamodb_client
from tests.unit.persistence.builders import ENTITY, HEAD, Head, add

TYPES = ObjectTypes([*OWN_TYPES, ENTITY, HEAD])
COUNTERS = 3


class LossyClient:
    """A client some of whose swaps of a reference get no answer."""

    def __init__(self, client: Any, references: str, draw: random.Random) -> None:
        self._client = client
        self._references = references
        self._draw = draw

    def __getattr__(self, operation: str) -> Any:
        real = getattr(self._client, operation)

        def call(**arguments: Any) -> Any:
            chance = self._draw.random() if arguments.get("TableName") == self._references else 1.0
            if operation not in {"put_item", "update_item"} or chance > 0.24:
                return real(**arguments)
            if chance < 0.08:
                real(**arguments)
            elif chance < 0.16:
                threading.Timer(self._draw.random() / 20, _late, (real, arguments)).start()
            raise ReadTimeoutError(endpoint_url="http://dynamodb")

        return call


def _late(real: Any, arguments: dict[str, Any]) -> None:
    try:
        real(**arguments)
    except Exception as error:  # noqa: BLE001 - nobody waits for this answer
        del error


def store_of(url: str, objects: str, references: str, draw: random.Random, *, lossy: bool) -> CatalogStore:
    """Catalog c of realm r, as one process sees it, with a node id of its own."""
    client = dynamodb_client(url)
    calls = Calls(LossyClient(client, references, draw) if lossy else client)
    backend = DynamoDbBackend(calls, objects=objects, references=references)
    return PersistenceProcess(backend, types=TYPES).store("r", "c")


def main(url: str, objects: str, references: str, process: str, threads: str, commits: str, group_size: str) -> None:
    """Commit until done or killed."""
    draw = random.Random(int(process))
    committer = Committer(
        store_of(url, objects, references, draw, lossy=True),
        "main",
        Head,
        retry=CommitRetries(tries=100, seconds=20, first_wait=0.005, max_wait=0.1),
        group_size=int(group_size),
    )
    lock = threading.Lock()

    def say(what: str, operation: str, **more: Any) -> None:
        line = json.dumps({"what": what, "operation": operation, "at": time.monotonic(), **more}) + "\n"
        with lock:
            # One system call: a killed process leaves no half line.
            os.write(sys.stdout.fileno(), line.encode())

    def run(thread: int) -> None:
        counters = itertools.cycle(range(COUNTERS))
        for number in range(int(commits)):
            counter = f"n{next(counters)}"
            operation = f"{process}.{thread}.{number}.{counter}"
            say("begin", operation)
            try:
                done = committer.commit(add(counter), operation=operation)
            except CommitUnknown as error:
                say("unknown", operation, commit=error.commit_id)
            except (CommitContended, BackendUnavailable):
                say("failed", operation)
            else:
                say("done", operation, commit=done.commit_id, result=done.result)

    with ThreadPoolExecutor(int(threads)) as pool:
        for finished in [pool.submit(run, thread) for thread in range(int(threads))]:
            finished.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
