"""A run of maintenance on Spark, for stores whose keys do not fit into one process.

It has the same three steps, the same task and the same stored state as a run in one process (`maintenance.sweep`), so
runs of both kinds may alternate. Executors scan segments. Then the references are fenced and their objects marked, one
level of links at a time. A join of both shows what was scanned and is not marked: it is unneeded.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from polaris_persistence.backends.base import SYSTEM, ObjectKey, key_text
from polaris_persistence.catalogs.executors import ExecutorStores
from polaris_persistence.maintenance.marking import MarkedKeys, Marker, fence, refusal
from polaris_persistence.maintenance.run import RealmSweepReport, SweepPolicy, SweepState
from polaris_persistence.maintenance.spark_tasks import (
    KEYS,
    LINKS,
    RESULTS,
    DeleteKeys,
    FollowLinks,
    ReadKeys,
    ScanSegments,
    WriteKeys,
)
from polaris_persistence.maintenance.sweep import HeldTask, RealmMaintenance, state_of
from polaris_persistence.objects.objects import ObjectRef

_KEY: Final = ["realm", "catalog", "type", "id"]
_SECOND: Final = 1_000_000
Refused = dict[tuple[str, str | None], str]
"""Why catalogs are not swept, by realm and catalog; None for a whole realm."""


@dataclass
class _Roots:
    """The marked heads and what they link to directly; the keys whose links are still to be followed; refusals."""

    marked: set[ObjectKey] = field(default_factory=set)
    follow: list[ObjectKey] = field(default_factory=list)
    refused: "Refused" = field(default_factory=dict)


class SparkSweep:
    """Mark and sweep over all realms of a store on the executors of a session.

    `policy.lost_after` must exceed the longest step (a scan of the table), because the task is renewed between steps.
    """

    def __init__(self, spark: SparkSession, stores: ExecutorStores, policy: SweepPolicy) -> None:
        self._spark = spark
        self._stores = stores
        self._policy = policy
        self._process = stores.open()
        self._backend = self._process.backend
        self._task = RealmMaintenance(self._backend, self._process.uncached_store, policy=policy).task

    def run(self) -> RealmSweepReport:
        """Run once. A stopped run of a process is not continued but replaced.

        Raises TaskHeld, TaskTakenOver, CorruptObject, CommitOutcomeUnknown, BackendUnavailable, and Spark's errors of a
        failed job. After those another process can run once the task is presumed lost.
        """
        held = self._task.start()
        kept = state_of(held.state)
        began = self._backend.time()
        if kept.since and began < kept.not_before(self._policy):
            held.finish(held.state)
            return RealmSweepReport(complete=True, not_before=kept.not_before(self._policy))
        task = HeldTask(held, SweepState(unneeded=kept.unneeded, since=kept.since))
        # Written before the first fence: a scan that Spark repeated later would take new objects for unneeded ones.
        scans = self._scan()
        task.checkpoint(None)
        roots = self._fence()
        marked, refused = self._mark(roots)
        ended_marking = self._backend.time() + _SECOND
        task.checkpoint(None)
        chunks = [ObjectRef(*ref) for scan in scans for ref in scan["chunks"]]
        unneeded = self._without(self._keys(chunks), marked)
        for realm, catalog in refused:
            mine = (F.col("realm") == realm) & (F.lit(True) if catalog is None else F.col("catalog") == catalog)
            unneeded = unneeded.where(~mine)
        unneeded = unneeded.localCheckpoint()
        before = self._keys(kept.unneeded)
        deleted = self._results(unneeded.join(before.select(*_KEY), _KEY, "left_semi"), DeleteKeys(self._stores))
        written = self._results(self._without(unneeded, before), WriteKeys(self._stores, self._policy.chunk))
        found = [ObjectRef(*ref) for result in written for ref in result["chunks"]]
        needed = marked.count()
        task.finish(SweepState(unneeded=tuple(found), since=ended_marking), needed)
        self._process.uncached_store(SYSTEM, SYSTEM).delete([*chunks, *kept.unneeded])
        return RealmSweepReport(
            complete=True,
            references=len(list(self._backend.references())),
            marked=needed,
            scanned=sum(scan["scanned"] for scan in scans),
            deleted=sum(result["deleted"] for result in deleted),
            young=sum(result["written"] for result in written),
            unknown=sum(scan["unknown"] for scan in scans),
            refused=tuple(
                sorted(
                    (realm if catalog is None else key_text(realm, catalog), why)
                    for (realm, catalog), why in refused.items()
                )
            ),
        )

    def _scan(self) -> list[dict[str, Any]]:
        count = max(self._policy.segments, self._spark.sparkContext.defaultParallelism)
        numbers = self._spark.range(0, count, 1, count).withColumnRenamed("id", "number")
        return self._results(numbers, ScanSegments(self._stores, count, self._policy.page, self._policy.chunk))

    def _fence(self) -> _Roots:
        roots = _Roots()
        kept = self._policy.log_kept
        log_since = self._backend.time() - round(kept * 1e6) if kept else None
        for reference in sorted(self._backend.references(), key=lambda reference: reference.key):
            store = self._process.uncached_store(reference.key.realm, reference.key.catalog)
            marks = MarkedKeys()
            try:
                fenced = fence(self._backend, reference)
                marker = Marker(self._process.types, marks, log_since=log_since)
                pending = marker.begin(store, fenced) if fenced else []
            except Exception as error:  # noqa: BLE001 - whatever a type raises, it is this catalog's alone
                key = reference.key
                roots.refused[key.realm, key.catalog if key.name else None] = refusal(error)
                continue
            roots.marked |= marks.keys
            roots.follow += [store.key(ref) for ref in pending]
        return roots

    def _mark(self, roots: _Roots) -> tuple[DataFrame, "Refused"]:
        """Return the marked keys, each once, and why catalogs are not swept."""
        refused = dict(roots.refused)
        marked = self._frame(roots.marked)
        level = self._frame(set(roots.follow))
        while not level.isEmpty():
            links = level.mapInArrow(FollowLinks(self._stores), LINKS).localCheckpoint()
            for row in links.where("refused is not null").collect():
                refused[row["realm"], row["catalog"]] = row["refused"]
            new = (
                links.where("refused is null")
                .groupBy(*_KEY)
                .agg(F.max("parts").alias("parts"), F.max("follow").alias("follow"))
            )
            new = self._without(new, marked).localCheckpoint()
            marked = marked.unionByName(new.drop("follow")).localCheckpoint()
            level = new.where("follow").drop("follow")
        return marked, refused

    def _frame(self, keys: Iterable[ObjectKey]) -> DataFrame:
        rows = [(key.realm, key.catalog, key.type, key.id, 1) for key in keys]
        return self._spark.createDataFrame(rows, KEYS)

    def _keys(self, chunks: Sequence[ObjectRef]) -> DataFrame:
        """Return the keys of stored chunks, each once."""
        refs = self._spark.createDataFrame([tuple(ref) for ref in chunks], "type string, id long, parts int")
        spread = refs.repartition(max(1, len(chunks)), "id")
        read = spread.mapInArrow(ReadKeys(self._stores), KEYS)
        return read.groupBy(*_KEY).agg(F.max("parts").alias("parts"))

    @staticmethod
    def _without(keys: DataFrame, others: DataFrame) -> DataFrame:
        return keys.join(others.select(*_KEY), _KEY, "left_anti")

    @staticmethod
    def _results(frame: DataFrame, task: Any) -> list[dict[str, Any]]:
        return [json.loads(row["result"]) for row in frame.mapInArrow(task, RESULTS).collect()]
