"""One run: write the tables, ask for the purges, carry out the faults, wait for the ends, and look at what is left."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import ClientError

from delegation.cli.connection import Stack
from delegation.removal.attempt import receipt_key
from delegation.removal.purge.task_type import PurgeDetails
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Status, Task
from infra.local import resources
from infra.local.demo.tables import connect
from tests.chaos.callers import Callers
from tests.chaos.faults import Faults
from tests.chaos.findings import Observed, ObservedTable
from tests.chaos.load import Make, TableOfLoad, Way
from tests.chaos.plan import Fault
from tests.chaos.site import RELEASE, WholeSystem
from tests.chaos.tables import WAREHOUSE, WrittenTable, written
from tests.faults.shared.histories import rows_of
from tests.faults.shared.victims import variables_of

SETTLING_SECONDS: Final = 600.0
"""So long after the last fault a task may take to end; one that has not is a finding.

It may wait a minute for a lease to end, and one after the kill of the process that refreshes the reference index; the
rest is for machines with much else to do, where a Spark job takes minutes.
"""
FIRST: Final = TableOfLoad("first", "space000", Make.SMALL, Way.BACKGROUND, 0.0)
"""The table that is purged before the faults begin: until the reference index is complete, all purges wait for one."""
STRANGERS_EVERY: Final = 10
"""One of so many tables has a file in its folder that none of its snapshots names."""
_TICK_SECONDS: Final = 0.25


class Run:
    """A run on a site; `say` prints a line with the time since its beginning."""

    def __init__(self, site: WholeSystem, load: tuple[TableOfLoad, ...], seed: int, say: Callable[[str], None]) -> None:
        self._site = site
        self._load = (FIRST, *load)
        self._say = say
        self._seed = seed
        self._bucket = urlsplit(WAREHOUSE).netloc
        self._written: dict[str, WrittenTable] = {}
        self._strangers: set[str] = set()
        self._needed: dict[str, frozenset[str]] = {}
        self._ended: dict[str, Task] = {}
        self._dropped: set[str] = set()
        self._pause = threading.Event()
        self.settled_seconds = 0.0
        self.callers = Callers(site, seed)
        self._catalog = connect(Stack.read(site.stack.path))

    def prepare(self) -> None:
        """Write every table and have the catalog know it, and the clones."""
        for namespace in sorted({table.namespace for table in self._load}):
            self.callers.catalog.create_namespace(self.callers.identifier(self._load[0]).catalog, (namespace,))
        for place, table in enumerate(self._load):
            made = self._written[table.name] = written(table, self._seed)
            objects = {_key(uri): data for uri, data in made.objects.items()}
            if place % STRANGERS_EVERY == 0:
                stranger = f"{made.location}/data/of-no-snapshot-{table.name}.parquet"
                self._strangers.add(stranger)
                objects[_key(stranger)] = b"x"
            self._site.store.put(self._bucket, objects)
            self._catalog.register_table((table.namespace, table.name), made.metadata_location)
            if table.make is Make.CLONED:
                self._needed[table.name] = made.early
                self._catalog.register_table((table.namespace, f"{table.name}_clone"), made.early_metadata_location)
        files = sum(len(made.files) for made in self._written.values())
        self._say(f"wrote {len(self._load)} tables with {files} files")

    def warm_up(self) -> None:
        """Have the first table purged; raises RuntimeError if that takes longer than SETTLING_SECONDS."""
        began = time.monotonic()
        self.callers.ask(FIRST)
        while FIRST.name not in self._ended:
            if time.monotonic() - began > SETTLING_SECONDS:
                raise RuntimeError(f"the first purge did not end within {SETTLING_SECONDS:.0f} s; read the logs")
            self._follow()
            self._pause.wait(_TICK_SECONDS)
        self._say(f"the first purge took {time.monotonic() - began:.0f} s; the faults begin")

    def go(self, plan: tuple[Fault, ...], seconds: float) -> Faults:
        """Ask for the purges and carry out the faults as they are due; return when the time is over."""
        purges = [table for table in self._load if table.make is not Make.LIVE and table is not FIRST]
        pending = sorted([*purges, *plan], key=lambda each: each.at)
        began = time.monotonic()
        with Faults(self._site, self.callers, self._say) as faults:
            while (now := time.monotonic() - began) < seconds:
                while pending and pending[0].at <= now:
                    due = pending.pop(0)
                    if isinstance(due, Fault):
                        faults.begin(due)
                    else:
                        self.callers.ask(due)
                self._follow()
                self._pause.wait(_TICK_SECONDS)
        faults.join()
        return faults

    def settle(self) -> None:
        """Wait until every caller has an outcome and every task has ended, at most SETTLING_SECONDS."""
        began = time.monotonic()
        while time.monotonic() - began < SETTLING_SECONDS:
            self._follow()
            if not self.callers.busy() and len(self._ended) == len(self.callers.tasks):
                break
            self._pause.wait(_TICK_SECONDS)
        self.settled_seconds = time.monotonic() - began
        for error in self.callers.raised():
            raise error

    def observed(self, faults: Faults) -> Observed:
        """Return what is left, with every fault over."""
        content = frozenset(self._listed())
        return Observed(
            tables=[self._observed(table) for table in self._load],
            strangers=frozenset(self._strangers),
            content=content,
            calls=tuple(self.callers.calls),
            paused=faults.paused,
            old_release=sorted(self._old_release()) if faults.deployed else (),
        )

    def _follow(self) -> None:
        """Read the tasks that have not ended; have the purged tables dropped."""
        tables = {table.name: table for table in self._load}
        for name, task_id in list(self.callers.tasks.items()):
            if name in self._ended:
                continue
            try:
                head = self._site.tasks.reads.get(task_id)
            except TaskNotFound:
                continue
            if head.is_terminal:
                self._ended[name] = head
                if head.status is Status.SUCCESS and tables[name].is_purged:
                    self.callers.drop(tables[name])

    def _observed(self, table: TableOfLoad) -> ObservedTable:
        task_id = self.callers.tasks.get(table.name)
        files, needed = self._written[table.name].files, self._needed.get(table.name, frozenset())
        if task_id is None:
            return ObservedTable(table, files, needed, refusal=self.callers.refusals.get(table.name, ""))
        rows = rows_of(self._site.tasks, task_id)
        head = self._site.tasks.reads.get(task_id)
        return ObservedTable(table, files, needed, task_id, "", head, rows, self._receipt(head))

    def _receipt(self, head: Task) -> Mapping[str, Any] | None:
        """Return the receipt beside the last segment of the task's plan."""
        segments = PurgeDetails.of(head).plan_segments
        if not segments:
            return None
        try:
            answer = self._site.admin.get_object(Bucket=resources.PLAN_BUCKET, Key=receipt_key(segments[-1].id))
        except ClientError:
            return None
        found: dict[str, Any] = json.loads(answer["Body"].read())
        return found

    def _old_release(self) -> Iterator[str]:
        for name, function in self._site.functions().items():
            for pid in function.pids():
                if f"{RELEASE}=1".encode() in variables_of(pid):
                    yield f"{name}, process {pid}"

    def _listed(self) -> Iterator[str]:
        for page in self._site.admin.get_paginator("list_objects_v2").paginate(Bucket=self._bucket):
            for each in page.get("Contents", ()):
                yield f"s3://{self._bucket}/{each['Key']}"


def _key(uri: str) -> str:
    return urlsplit(uri).path.lstrip("/")
