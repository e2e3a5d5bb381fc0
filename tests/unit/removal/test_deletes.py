"""Deletes in batches, each compared with the references before it begins: what grows, what is cut off, what ends it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import pytest

from delegation.removal import deletes
from delegation.removal.chunks import Chunk, Phase
from delegation.removal.deletes import Tally, Work, delete_in_lots, delete_or_raise
from delegation.removal.errors import ComparisonTooOld, EngineFailed
from delegation.removal.index import PlanIndex
from delegation.removal.marks import Deleted
from tests.unit.removal.test_index import INDEX


@dataclass
class Lots:
    """Deletes the chunks of plan after plan; times are of one clock, also that which chunks are cut off by."""

    chunks: int
    seconds: Callable[[int], float] = lambda _chunks: 0.0
    comparing: float = 0.0
    replaced: set[int] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    failures: int = 1
    permanent: int = 0
    clock: float = 0.0
    plan: int = 0
    compared: int = 0
    done: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    begun: list[tuple[float, float]] = field(default_factory=list)

    def left(self) -> Sequence[Work]:
        index = PlanIndex(**{**INDEX.model_dump(), "plan_id": f"plan-{self.plan}"})
        names = [f"c{number:04d}" for number in range(self.chunks)]
        return [
            Work(index, Chunk(name=name, kind=Phase.DATA, count=1_000, bytes=1, first=name, last=name, sha256="0" * 64))
            for name in names
            if name not in self.done
        ]

    def compare(self, _lot: Sequence[Work]) -> bool:
        self.compared += 1
        self.loaded = self.clock
        self.clock += self.comparing
        if self.compared in self.replaced:
            self.plan += 1
            return False
        return True

    def delete(self, lot: Sequence[Work], report: Callable[[Tally], None]) -> None:
        self.sizes.append(len(lot))
        began = self.clock
        for work in takewhile(lambda one: deletes.time.time() <= one.not_after, lot):
            self.clock += self.seconds(len(lot))
            self.begun.append((self.clock - self.loaded, self.clock - began))
            if work.chunk.name in self.refused:
                report(Tally(failed=self.failures, permanent=self.permanent))
            else:
                self.done.append(work.chunk.name)

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("time.time", lambda: self.clock)
        delete_in_lots(
            self.left, 1_000, self.compare, self.delete, lambda _: None, now=lambda: self.clock, most_slow=10
        )


def test_lots_grow_while_they_take_less_than_half_of_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Lots(100, seconds=lambda _: 0.3)
    found.run(monkeypatch)
    assert found.sizes == [1, 2, 4, 8, 16, 32, 32, 5]
    assert len(set(found.done)) == len(found.done) == 100


def test_no_chunk_of_a_lot_begins_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that begins to throttle: the rest of the lot is compared again, and lots become small."""
    slow = Lots(40)
    slow.seconds = lambda _: 0.1 if len(slow.done) < 15 else 4.0
    slow.run(monkeypatch)
    assert max(took for _, took in slow.begun) <= deletes.LOT_SECONDS + 4.0
    assert slow.sizes[4] == 16
    assert slow.sizes[-1] <= 2
    assert sorted(slow.done) == sorted(set(slow.done))
    assert len(slow.done) == 40


def test_a_lot_begins_within_thirty_seconds_of_its_load(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Lots(12, seconds=lambda _: 1.0, comparing=25.0)
    found.run(monkeypatch)
    assert len(found.done) == 12
    assert max(since for since, _ in found.begun) <= deletes.OLDEST_LOAD + 1.0


@pytest.mark.parametrize(("comparing", "begins", "compared"), [(deletes.OLDEST_LOAD, True, 10), (0.0, False, None)])
def test_comparisons_that_take_too_long_and_chunks_that_never_begin_end_the_attempt(
    comparing: float, begins: bool, compared: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors whose clock is ahead begin nothing."""
    found = Lots(3, comparing=comparing)
    if not begins:
        monkeypatch.setattr(found, "delete", lambda *_: None)
    with pytest.raises(ComparisonTooOld):
        found.run(monkeypatch)
    assert found.done == []
    assert compared in (None, found.compared)


def test_a_plan_that_was_replaced_continues_with_what_is_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Lots(10, replaced={2, 3, 5})
    found.run(monkeypatch)
    assert sorted(found.done) == [f"c{number:04d}" for number in range(10)]


def test_a_chunk_with_refused_files_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Lots(10, refused={"c0000", "c0005"}, replaced={4})
    found.run(monkeypatch)
    assert len(found.done) == 8


@pytest.mark.parametrize(("permanent", "lots_sent"), [(0, 1), (1_000, 4)])
def test_a_store_that_throttles_is_not_tried_lot_by_lot(
    permanent: int, lots_sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lot would wait for two minutes; keys that nobody may delete do not keep the others from being deleted."""
    found = Lots(10, refused={f"c{number:04d}" for number in range(10)}, failures=1_000, permanent=permanent)
    found.run(monkeypatch)
    assert len(found.sizes) == lots_sent


def test_chunks_without_a_failure_and_without_a_mark_end_the_attempt() -> None:
    with pytest.raises(EngineFailed, match="2 chunks"):
        delete_or_raise(Lots(2).left, Deleted(), lambda add: add(Tally(files=2_000)), lambda _now, _failed: None)
