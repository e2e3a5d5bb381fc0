"""Admission with thousands of lanes: bounded reads, a turn for every lane, bookings that end with what they booked."""

from collections import Counter
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.tasks.errors import StoreUnavailable
from delegation.tasks.life.lanes import LANES, Caps, Lane, Queued, Traits
from delegation.tasks.life.model import LanePlace, Status
from delegation.tasks.life.policy import Lease
from delegation.tasks.stores.admission import (
    EVERY_LANE,
    Entry,
    LaneRange,
    LaneReader,
    LanesPage,
    Register,
    merged,
    page_of,
    queued,
    register_item,
    register_of,
)
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.timestamps import isoformat
from tests.kit.tasks.builders import HOUR, MINUTE, NOW, SECOND
from tests.unit.orchestration.test_admission import NotedAdmission


class SlowStore(MemoryTaskStore):
    """A store whose reads of waiting tasks take time, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.seconds = 0.0
        self.site: NotedAdmission | None = None

    def _read(self) -> None:
        self.reads += 1
        if self.site is not None:
            self.site.clock.advance(self.seconds * SECOND)

    def queued_in(self, now: datetime, *, each: int, lanes: int, span: LaneRange) -> LanesPage:
        self._read()
        return super().queued_in(now, each=each, lanes=lanes, span=span)


def site_with(tenants: int, each: int, caps: Caps) -> tuple[NotedAdmission, SlowStore]:
    store = SlowStore()
    site = NotedAdmission(caps, store)
    store.site = site
    for _ in range(each):
        for tenant in range(tenants):
            site.submit(traits=Traits(f"catalog-{tenant:04d}", "lake"))
    return site, store


def finish(site: NotedAdmission, task_id: str) -> None:
    attempt = site.acquire(task_id).attempt_count
    site.tasks.leases.start(task_id, attempt)
    site.tasks.leases.succeed(task_id, attempt, "done")


def test_one_admission_among_a_thousand_lanes_reads_a_few_of_them_however_slowly_and_fills_the_room() -> None:
    site, store = site_with(1_000, 2, Caps(everything=20))
    store.seconds = 10.0
    assert site.admission.run() == 20
    assert store.reads <= 2


def test_every_lane_has_its_turn_while_others_have_more_to_do() -> None:
    site, _ = site_with(100, 5, Caps(everything=10))
    tenants: list[str] = []
    done = 0
    while len(tenants) < 200:
        site.admission.run({task_id for task_id, _ in site.started[:done]})
        fresh, done = site.started[done:], len(site.started)
        for task_id, _ in fresh:
            tenants.append(site.tasks.reads.get(task_id).admission.lane or "")
            finish(site, task_id)
    assert len(set(tenants[:130])) == 100  # within two rounds of the lanes
    assert max(Counter(tenants).values()) <= 3


def test_an_urgent_task_starts_first_wherever_the_last_admission_stopped() -> None:
    site, _ = site_with(200, 2, Caps(everything=10))
    for _ in range(3):
        before = len(site.started)
        site.admission.run({task_id for task_id, _ in site.started})
        for task_id, _ in site.started[before:]:
            finish(site, task_id)
    assert site.store.register().after is not None
    urgent = site.submit(traits=Traits("catalog-0000", "lake", priority=9))
    before = len(site.started)
    site.admission.run({task_id for task_id, _ in site.started})
    assert urgent in {task_id for task_id, _ in site.started[before:]}


@pytest.mark.parametrize("lanes", [127, 128, 129, 300])
@pytest.mark.parametrize("priority", [5, 3, 0])
def test_a_task_behind_many_lanes_whose_bucket_is_full_starts_whatever_its_priority(lanes: int, priority: int) -> None:
    site = NotedAdmission(Caps(bucket=1))
    for tenant in range(lanes + 1):
        site.submit(traits=Traits(f"catalog-{tenant:04d}", "full"))
    assert site.admission.run() == 1
    waiting = site.submit(traits=Traits("z", "free", priority=priority))
    for _ in range(5):
        site.admission.run()
    assert waiting in {task_id for task_id, _ in site.started}


def test_lanes_of_three_priorities_that_cannot_start_hide_no_later_one() -> None:
    site = NotedAdmission(Caps(bucket=1))
    for priority in (7, 5, 3):
        for tenant in range(150):
            site.submit(traits=Traits(f"catalog-{tenant:04d}", "full", priority=priority))
    site.admission.run()
    waiting = {
        site.submit(traits=Traits(tenant, f"free-{tenant}-{one}", priority=one))
        for tenant in "az"
        for one in (7, 5, 3, 1)
    }
    for _ in range(12):
        site.admission.run()
    assert waiting <= {task_id for task_id, _ in site.started}


# ---- bookings


@pytest.mark.parametrize("announced", [True, False])
def test_a_place_whose_task_has_ended_is_free_at_once_with_a_message_and_else_a_second_later(announced: bool) -> None:
    """The message about the end may come when nothing waits; the index never showed the task."""
    site = NotedAdmission(Caps(everything=1))
    first = site.submit()
    site.admission.run()
    finish(site, first)
    if announced:
        assert site.admission.run({first}) == 0
    else:
        site.clock.advance(SECOND)
    second = site.submit()
    assert site.admission.run() == 1
    assert site.started[-1] == (second, 1)


def test_a_booking_of_another_process_that_is_about_to_start_its_task_counts() -> None:
    site = NotedAdmission(Caps(everything=1))
    site.submit()
    site.submit()
    start_all = site.admission._start_all
    seen: list[int] = []

    def paused(*arguments: Any) -> int:
        site.clock.advance(2 * SECOND)
        seen.append(site.admitting(Caps(everything=1)).run())
        return start_all(*arguments)

    site.admission._start_all = paused  # type: ignore[method-assign]
    assert site.admission.run() == 1
    assert seen == [0]


def test_what_was_booked_too_late_to_be_started_is_free_at_once() -> None:
    site = NotedAdmission(Caps(everything=1))
    site.submit()
    write = site.store.write_register

    def pauses(register: Register) -> bool:
        written = write(register)
        site.clock.advance(6 * SECOND)
        return written

    site.store.write_register = pauses  # type: ignore[method-assign]
    assert site.admission.run() == 0
    site.store.write_register = write  # type: ignore[method-assign]
    assert site.admission.run() == 1


def test_a_store_that_fails_after_the_starts_leaves_the_bookings() -> None:
    site = NotedAdmission(Caps(everything=1))
    task_id = site.submit()
    register = site.store.register
    calls: list[int] = []

    def fails() -> Register:
        calls.append(1)
        if len(calls) > 1:
            raise StoreUnavailable("no answer")
        return register()

    def cancelled(_task_id: str) -> None:
        return None

    site.store.register = fails  # type: ignore[method-assign]
    site.tasks.dispatching.admit = cancelled  # type: ignore[assignment, method-assign]
    assert site.admission.run() == 0
    assert (len(calls), [one.task_id for one in register().recent]) == (2, [task_id])


# ---- housekeeping


@pytest.mark.parametrize("kind", ["STORE_MAINTENANCE", "REFERENCE_INDEX"])
def test_the_services_own_tasks_never_wait_behind_callers(kind: str) -> None:
    site = NotedAdmission(Caps(everything=1))
    site.submit()
    site.admission.run()
    own = site.tasks.reads.get(site.submit(task_type=kind))
    assert (own.is_queued, own.admission.lane, own.dispatches.count) == (False, None, 1)
    assert site.places == 1


def test_a_service_task_that_a_former_release_queued_waits_once_at_most() -> None:
    site = NotedAdmission(Caps(everything=1))
    lane = Lane.of("STORE_MAINTENANCE", Traits()).text
    first = site.tasks.submission.first(task_id="m", task_type="STORE_MAINTENANCE", payload="{}", recurrence_seconds=60)
    site.tasks.submission.create(first.evolve(admission=LanePlace(lane=lane, admitted_ts=NOW)))
    finish(site, "m")
    again = site.tasks.reads.get("m")
    assert (again.status, again.admission.lane, again.is_queued) == (Status.SUBMITTED, None, False)


# ---- the reader of the index


def entries_of(lanes: dict[str, int], shard: int = 0) -> list[Entry]:
    found = []
    for lane, count in lanes.items():
        found += [(f"{lane}/{isoformat(NOW + n * SECOND)}", f"{lane}-{shard}-{n}") for n in range(count)]
    return sorted(found)


class Index:
    """Entries as DynamoDB pages through them."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.queries = 0

    def read(self, span: LaneRange, limit: int, start: Any) -> tuple[list[Entry], Any]:
        self.queries += 1
        inside = [one for one in self.entries if span.after <= one[0] <= span.until and (start is None or one > start)]
        page = inside[:limit]
        return page, page[-1] if len(inside) > limit else None


LANE_TEXTS = st.builds(
    lambda priority, tenant, kind, size: f"{priority}/{tenant}/lake/{kind}/{size}",
    st.integers(0, 9),
    st.sampled_from(["a", "a-", "a%2F", "b", "b0"]),
    st.sampled_from(["K", "K.x"]),
    st.sampled_from("sl"),
)


@given(
    shards=st.lists(st.dictionaries(LANE_TEXTS, st.integers(1, 30), max_size=12), min_size=1, max_size=4),
    each=st.integers(1, 6),
    lanes=st.integers(1, 6),
)
def test_reading_on_from_page_to_page_finds_what_one_read_of_everything_finds(shards, each, lanes):
    indexes = [Index(entries_of(shard, number)) for number, shard in enumerate(shards)]

    def page(span: LaneRange, most: int) -> LanesPage:
        return merged([LaneReader(one.read, each=each, lanes=most).run(span) for one in indexes], NOW + HOUR, each=each)

    found: list[Queued] = []
    after: str | None = EVERY_LANE.after
    while after is not None:
        part = page(LaneRange(after, EVERY_LANE.until), lanes)
        assert part.after is None or part.after > after
        found += part.queued
        after = part.after
    together: dict[str, list[Entry]] = {}
    for entry in sorted(entry for one in indexes for entry in one.entries):
        together.setdefault(entry[0].rpartition("/")[0], []).append(entry)
    whole = page_of(together, NOW + HOUR, each=each, most=10_000, span=EVERY_LANE)
    assert Counter((one.lane, one.since) for one in whole.queued) == Counter((one.lane, one.since) for one in found)


def test_a_page_of_many_lanes_is_one_query_and_a_lane_of_many_tasks_another() -> None:
    light = Index(entries_of({f"4/t{n:04d}/lake/K/s": 2 for n in range(1_000)}))
    reader = LaneReader(light.read, each=30, lanes=LANES).run(EVERY_LANE)
    assert (light.queries, len({entry[0].rpartition("/")[0] for entry in reader.entries}) >= LANES) == (1, True)
    assert len(LaneReader(light.read, each=30, lanes=1_000).run(EVERY_LANE).entries) == 2_000
    assert light.queries <= 7
    heavy = Index(entries_of({f"4/t{n:04d}/lake/K/s": 300 for n in range(40)}))
    reader = LaneReader(heavy.read, each=30, lanes=1_000).run(EVERY_LANE)
    assert (heavy.queries, len(reader.entries), reader.after) == (16, 16 * 30, "4/t0015/lake/K/s0")


def test_a_lane_of_a_newer_release_hides_no_other() -> None:
    index = Index(entries_of({"4/t/lake/K/s": 3, "5/t/lake/K/x/newer": 40, "6/t/lake/K/s": 3}))
    reader = LaneReader(index.read, each=5, lanes=10_000).run(EVERY_LANE)
    assert Counter(entry[0].rpartition("/")[0] for entry in reader.entries) == {
        "4/t/lake/K/s": 3,
        "5/t/lake/K/x/newer": 5,
        "6/t/lake/K/s": 3,
    }


def test_the_register_keeps_its_place_and_is_read_without_one() -> None:
    register = Register(3, (), "4/t/lake/K/s0")
    assert register_of(register_item(register)) == register
    assert "after" not in register_item(Register(3))
    assert register_of({"format": 1, "revision": 4, "recent": []}).after is None


# ---- large tasks whose jobs wait


def test_large_tasks_whose_jobs_wait_leave_half_of_the_places_to_small_ones() -> None:
    site = NotedAdmission(Caps(everything=10))
    for _ in range(30):
        site.submit(traits=Traits("a", "lake", is_small=False))
    for _ in range(3):
        site.admission.run()
        for task_id, _ in site.started:
            if not site.tasks.reads.get(task_id).is_held:
                site.acquire(task_id)  # its job waits in the queue of the job service
        site.clock.advance(MINUTE)
    assert len(site.started) == 5
    small = [site.submit(traits=Traits("a", "lake")) for _ in range(20)]
    site.admission.run()
    assert [task_id for task_id, _ in site.started[5:]] == small[:5]
    for task_id in small[:3]:
        finish(site, task_id)
    site.clock.advance(MINUTE)
    site.admission.run(set(small[:3]))
    assert {task_id for task_id, _ in site.started[10:]} == set(small[5:8])


def test_a_large_task_moves_to_the_running_ones_when_its_work_begins() -> None:
    site = NotedAdmission(Caps(everything=4))
    task_id = site.submit(traits=Traits("a", "lake", is_small=False))
    seen = []

    def look() -> None:
        seen.extend((one.is_held, one.is_begun) for one in MemoryTaskStore.running(site.store))

    site.admission.run()
    look()
    site.acquire(task_id)
    look()
    site.tasks.leases.note(task_id, 1, progress_ts=site.clock())
    look()
    assert seen == [(False, False), (True, False), (True, True)]
    other = site.submit(traits=Traits("b", "lake", is_small=False))
    site.admission.run()
    site.acquire(other)
    site.tasks.leases.heartbeat(other, 1, lambda now: Lease.lasting(HOUR, now), engine="inline")
    assert all(one.is_begun for one in MemoryTaskStore.running(site.store))


def test_whether_a_task_waits_is_seen_behind_lanes_whose_time_has_not_come() -> None:
    site = NotedAdmission()
    site.submit(at=NOW + HOUR, traits=Traits("a"))
    assert not any(queued(site.store, site.clock(), each=1))
    site.submit(traits=Traits("b"))
    assert any(queued(site.store, site.clock() + MINUTE, each=1))
