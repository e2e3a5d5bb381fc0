"""What executors find when they compare is what one process finds, whatever is listed and needed."""

import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from delegation.removal import sources
from delegation.removal.attempt import MemoryAttempt
from delegation.removal.chunks import Chunk, Phase
from delegation.removal.errors import PlanTampered
from delegation.removal.orphans.context import OrphanSettings
from delegation.removal.orphans.errors import PrefixMismatch
from delegation.removal.orphans.index import Candidate, CandidateWriter, candidates_of
from delegation.removal.orphans.needed_rows import NeededSet, SortedNeeded
from delegation.removal.orphans.place import Equal, MismatchMode
from delegation.removal.orphans.spark import SpreadNeeded, range_ends
from delegation.removal.orphans.subtraction import Rules
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from tests.unit.removal.orphans.engines.sparkless import Executors, jobs
from tests.unit.removal.test_index import planned

ROOT = "s3://lake/wh/t"
NAMES = st.text(alphabet="ab/é. %2F", min_size=1, max_size=5)
LISTED = st.lists(st.tuples(NAMES, st.sampled_from(['"e"', '"f"']), st.integers(1, 9)), max_size=12)
SPELLED = st.tuples(
    st.sampled_from(["s3://lake", "s3a://lake", "s3://sea", "S3N://alias", "gs://lake"]),
    st.sampled_from(["/wh/t/", "/wh//t/", "/wh/%74/", "/wh/x/../t/", "/elsewhere/"]),
    NAMES,
)
RULES = st.builds(
    Rules,
    st.sampled_from(MismatchMode),
    st.sampled_from([(), (f"{ROOT}/a/",), (f"{ROOT}/a/", f"{ROOT}/b/")]),
    st.sampled_from([None, 5]),
)
EQUAL = Equal.of({"s3n,s3a": "s3"}, {"alias": "lake"})


def context(plans: MemoryPlanStore, **changed: Any) -> Any:
    numbers = SimpleNamespace(made=0)

    def new_plan_id() -> str:
        numbers.made += 1
        return f"scratch/{numbers.made}"

    return SimpleNamespace(
        plans=plans,
        store=MemoryObjectStore(),
        identifier="cat.ns.t",
        attempt=MemoryAttempt("task"),
        options=SimpleNamespace(equal=EQUAL, neighbour="refuse", outside="keep"),
        settings=OrphanSettings(**{"run_records": 3, "chunk_paths": 2, "lot_paths": 2, "rows_here": 0, **changed}),
        new_plan_id=new_plan_id,
    )


@pytest.fixture(autouse=True, scope="module")
def a_few_rows_are_one_task() -> Iterator[None]:
    """Spread what the driver has read over several tasks, as it is for many rows."""
    with mock.patch.object(sources, "_ROWS", 3):
        yield


def stored(plans: MemoryPlanStore, listed: Sequence[Candidate], cut: int) -> list[tuple[str, Sequence[Chunk]]]:
    """Store candidates as the chunks of several parts, each in order."""
    parts: list[tuple[str, Sequence[Chunk]]] = []
    for number in range(cut):
        writer = CandidateWriter(plans, f"listing/{number}", "", chunk_paths=2)
        writer.extend(sorted(listed[number::cut]))
        writer.flush()
        parts.append((f"listing/{number}", writer.chunks))
    return parts


def outcome(ctx: Any, needed: NeededSet, parts: Any, rules: Rules, plan_id: str) -> Any:
    """Return what a comparison comes to, in the order of its chunks."""
    try:
        found = needed.subtracted(parts, plan_id, rules)
    except PrefixMismatch as error:
        return str(error)
    some = candidates_of(ctx.plans, [(plan_id, found.chunks)])
    assert all(chunk.count <= ctx.settings.chunk_paths for chunk in found.chunks)
    return [one for rows in some for one in rows], found.needed, found.findings


def both(ctx: Any, seed: int) -> Iterator[NeededSet]:
    yield SortedNeeded(ctx)
    yield SpreadNeeded(ctx, jobs(Executors(ctx), seed))


@settings(deadline=None)
@given(LISTED, st.lists(SPELLED, max_size=12), st.lists(NAMES, max_size=5), RULES, st.integers(1, 3), st.integers())
@example([("a", '"e"', 1)], [("gs://lake", "/wh/t/", "a")], [], Rules(MismatchMode.ERROR), 1, 0)
@example([("a", '"e"', 1), ("a", '"f"', 2)], [("s3://sea", "/wh/t/", "a")], [], Rules(MismatchMode.IGNORE), 2, 0)
@example([("a%", '"e"', 9)], [("s3a://lake", "/wh//t/", "a%25")], ["b"], Rules(MismatchMode.DELETE, (), 5), 1, 3)
def test_executors_find_what_one_process_finds(
    listed: list[tuple[str, str, int]],
    named: list[tuple[str, str, str]],
    claimed: list[str],
    rules: Rules,
    cut: int,
    seed: int,
) -> None:
    plans = MemoryPlanStore()
    ctx = context(plans)
    candidates = [Candidate(f"{ROOT}/{name}", len(name), etag, modified) for name, etag, modified in listed]
    parts = stored(plans, candidates, cut)
    claim = planned(plans, [sorted({f"{ROOT}/{name}" for name in claimed})])
    found, among = [], []
    for needed in both(ctx, seed):
        needed.add_files("".join(one) for one in named)
        needed.add_plan(claim)
        among.append([one for rows in needed.needed_among(parts, rules) for one in rows])
        found.append(outcome(ctx, needed, parts, rules, f"plan/{len(found)}"))
        needed.close()
    assert found[0] == found[1]
    assert sorted(among[0]) == sorted(among[1])


def test_what_is_small_is_compared_by_the_driver_alone() -> None:
    plans = MemoryPlanStore()
    candidates = [Candidate(f"{ROOT}/{number}", 1, '"e"', 1) for number in range(9)]
    parts = stored(plans, candidates, 2)
    for rows, is_here in ((10, True), (9, False)):
        ctx = context(plans, rows_here=rows)
        no_jobs: Any = SimpleNamespace(resources=Executors(ctx))
        needed = SpreadNeeded(ctx, no_jobs if is_here else jobs(Executors(ctx), 0))
        needed.add_files([f"{ROOT}/3"])
        left, count, _ = outcome(ctx, needed, parts, Rules(MismatchMode.ERROR), f"plan{rows}")
        assert (len(left), count) == (8, 1)
        assert list(needed.needed_among(parts, Rules(MismatchMode.ERROR))) == [[candidates[3]]]
        needed.close()


def test_the_first_of_all_mismatched_files_are_named_in_order() -> None:
    plans = MemoryPlanStore()
    ctx = context(plans)
    names = [f"{number:02d}" for number in range(60)]
    random.Random(1).shuffle(names)
    parts = stored(plans, [Candidate(f"{ROOT}/{name}", 1, '"e"', 1) for name in names], 3)
    for needed in both(ctx, 1):
        needed.add_files(f"s3://sea/wh/t/{name}" for name in names)
        _, _, [finding] = outcome(ctx, needed, parts, Rules(MismatchMode.IGNORE), "plan")
        needed.close()
        assert (finding.count, finding.sample) == (60, tuple(f"{ROOT}/{number:02d}" for number in range(20)))


def test_a_chunk_that_is_altered_or_lost_ends_the_comparison() -> None:
    for change in ("lost", "altered"):
        plans = MemoryPlanStore()
        ctx = context(plans)
        parts = stored(plans, [Candidate(f"{ROOT}/{number}", 1, '"e"', 1) for number in range(9)], 1)
        key = f"{parts[0][0]}/{parts[0][1][1].name}"
        plans.objects[key] = b"other"
        if change == "lost":
            del plans.objects[key]
        for needed in both(ctx, 0):
            with pytest.raises(PlanTampered, match=key):
                needed.subtracted(parts, "plan", Rules(MismatchMode.ERROR))
            if change == "lost":
                needed.add_files([f"{ROOT}/0"])
                assert [one.path for rows in needed.needed_among(parts, Rules(MismatchMode.ERROR)) for one in rows] == [
                    f"{ROOT}/0"
                ]
            needed.close()


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.integers(1, 9)), max_size=12), st.integers(1, 5))
def test_ranges_are_in_order_and_about_alike(firsts: list[tuple[str, int]], count: int) -> None:
    chunks = [
        Chunk(name="c", kind=Phase.DATA, count=files, bytes=1, sha256="", first=first, last=first)
        for first, files in firsts
    ]
    ends = range_ends([("plan", chunks)], count)
    assert list(ends) == sorted(set(ends))
    assert set(ends) <= {first for first, _ in firsts}
    assert len(ends) < count
