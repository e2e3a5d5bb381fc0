"""Files that the store did not have are counted once, by the first run over their chunk, and their bytes never."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.iceberg.paths import TableFile
from delegation.identifiers import TableIdentifier
from delegation.removal.attempt import Attempt, MemoryAttempt
from delegation.removal.chunks import ChunkWriter, Phase
from delegation.removal.deletes import DeleteEngine, InlineDeletes, Tally, Work
from delegation.removal.marks import Deleted, Marks, deleted_by_marks
from delegation.removal.spark import SparkDeletes
from delegation.removal.spark_executors import no_checkpoint
from delegation.storage.base import BatchResult, ObjectStore, PlanStore
from delegation.storage.deleter import AdaptiveRate, DeletePolicy
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from tests.kit.plans import plan_index
from tests.unit.removal.purge.spark.test_tasks import SparklessJobs, ThisProcess

QUICK = DeletePolicy(batch=3, threads=1, tries=2, pause=0.0, longest_pause=0.0)
SIZE = 10
TABLE = TableIdentifier("c", ("n",), "t")


class Telling(MemoryObjectStore):
    """A store that says which keys it did not have, as a disk does."""

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        had = {key for where, key in self.objects if where == bucket}
        result = super().delete(bucket, keys)
        absent = tuple(key for key in result.deleted if key not in had)
        return BatchResult(result.deleted, result.failed, result.delete_markers, absent)


@dataclass
class Settings:
    """DeleteSettings."""

    delete: DeletePolicy = QUICK


@dataclass
class OneAttempt:
    """A Deleting of one attempt that nothing interrupts."""

    store: ObjectStore
    plans: PlanStore
    attempt: Attempt = field(default_factory=lambda: MemoryAttempt("t"))
    identifier: TableIdentifier = TABLE
    settings: Settings = field(default_factory=Settings)
    now: Callable[[], float] = lambda: 0.0
    sleep: Callable[[float], None] = lambda _seconds: None
    rate: AdaptiveRate | None = None


@dataclass
class Scene:
    """A plan of `count` files of SIZE bytes in chunks of four, of which `absent` are not there."""

    count: int
    absent: frozenset[int] = frozenset()
    plans: MemoryPlanStore = field(default_factory=MemoryPlanStore)
    store: Telling = field(default_factory=Telling)

    def __post_init__(self) -> None:
        writer = ChunkWriter(self.plans, "p", Phase.DATA, chunk_paths=4)
        files = [TableFile(f"s3://lake/t/{number:03}", 8, SIZE) for number in range(self.count)]
        writer.extend(files)
        writer.flush()
        self.store.objects = {("lake", f"t/{n:03}"): b"x" for n in range(self.count) if n not in self.absent}
        self.index = plan_index(plan_id="p", roots=("s3://lake/t/",), chunks=tuple(writer.chunks))

    def run(self, engine: str = "inline") -> Tally:
        """Delete every chunk that has no mark; return what was reported."""
        marks = Marks(self.plans, "p")
        done = marks.done()
        work = [Work(self.index, chunk, marks.voided) for chunk in self.index.chunks if chunk.name not in done]
        total = Tally()
        engines: dict[str, DeleteEngine] = {
            "inline": InlineDeletes(),
            "spark": SparkDeletes(SparklessJobs(Resources(self.store, self.plans), 3)),
        }
        if work:
            engines[engine].delete(OneAttempt(self.store, self.plans), work, total.add)
        return total

    def figures(self) -> Deleted:
        return deleted_by_marks(self.plans, [self.index])


class Resources(ThisProcess):
    def store(self, identifier: TableIdentifier) -> ObjectStore:
        return self._objects

    def checkpoint(self, task_id: str, attempt: int) -> Callable[[], None]:
        return no_checkpoint


ENGINES = ["inline", "spark"]


@pytest.mark.parametrize("engine", ENGINES)
@given(st.integers(1, 14), st.randoms(use_true_random=False))
def test_the_report_and_the_marks_leave_out_the_bytes_of_absent_files(
    engine: str, count: int, chance: random.Random
) -> None:
    absent = frozenset(number for number in range(count) if chance.random() < 0.4)
    scene = Scene(count, absent)
    total = scene.run(engine)
    freed = SIZE * (count - len(absent))
    assert (total.files, total.bytes, total.absent) == (count, freed, len(absent))
    assert scene.figures() == Deleted(count, freed, len(absent))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_run_deleted_beside_a_refused_file_is_not_absent_in_the_next(engine: str) -> None:
    scene = Scene(8, frozenset({1, 6}))
    scene.store._refuse = lambda _bucket, key, _nth: "AccessDenied" if key == "t/002" else None
    first = scene.run(engine)
    assert (first.failed, first.absent) == (1, 2)
    scene.store._refuse = None
    second = scene.run(engine)
    assert (second.files, second.bytes, second.absent) == (4, 3 * SIZE, 1)
    assert scene.figures() == Deleted(8, 6 * SIZE, 2)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_whose_first_delete_got_no_clear_answer_was_not_absent(engine: str) -> None:
    scene = Scene(3)
    delete = scene.store.delete
    lost = []

    def deleted_without_an_answer(bucket: str, keys: Sequence[str]) -> BatchResult:
        result = delete(bucket, keys)
        lost.append(result)
        return BatchResult(()) if len(lost) == 1 else result

    scene.store.delete = deleted_without_an_answer  # type: ignore[method-assign]
    assert scene.run(engine).bytes == 3 * SIZE
    assert lost[-1].absent
    assert scene.figures() == Deleted(3, 3 * SIZE, 0)


def test_marks_of_older_runs_say_that_no_file_was_absent() -> None:
    scene = Scene(5)
    for chunk in scene.index.chunks:
        scene.plans.put(f"p/done/{chunk.name}", b"{}\n")
    assert scene.figures() == Deleted(5, 5 * SIZE, 0)


def test_the_figures_of_void_marks_do_not_count() -> None:
    scene = Scene(4, frozenset({0}))
    scene.run()
    Marks(scene.plans, "p").void()
    assert scene.figures() == Deleted()
    scene.store.objects = {("lake", f"t/{number:03}"): b"x" for number in range(4)}
    scene.run()
    assert scene.figures() == Deleted(4, 4 * SIZE, 0)
