"""Which waiting tasks start: within the caps, in a fair order, and never fewer than there is room for."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.tasks.life.lanes import STARTING_AT_LEAST, Caps, Lane, Queued, Running, Traits, admitted, part, room
from delegation.tasks.life.policy import InvalidProperty, Policies
from tests.effort import examples
from tests.kit.tasks.builders import NOW, SECOND

LANES = st.builds(
    Lane,
    tenant=st.sampled_from(["sales", "ops", ""]),
    bucket=st.sampled_from(["lake", "archive", ""]),
    task_type=st.sampled_from(["TABLE_PURGE", "acme.report"]),
    priority=st.sampled_from([0, 5, 9]),
    is_small=st.booleans(),
)
CAPS = st.none() | st.integers(1, 6)
LIMITS = st.builds(
    Caps,
    everything=CAPS,
    tenant=CAPS,
    bucket=CAPS,
    task_types=st.dictionaries(st.just("acme.report"), st.integers(1, 3)),
)


@st.composite
def waiting(draw: st.DrawFn) -> list[Queued]:
    drawn = draw(st.lists(st.tuples(LANES, st.integers(0, 50)), max_size=30))
    return [Queued(f"task-{n}", lane, NOW + late * SECOND) for n, (lane, late) in enumerate(drawn)]


@st.composite
def running(draw: st.DrawFn) -> list[Running]:
    drawn = draw(st.lists(st.tuples(LANES, st.booleans(), st.booleans()), max_size=10))
    return [Running(f"running-{n}", lane, is_held, is_begun) for n, (lane, is_held, is_begun) in enumerate(drawn)]


def counts(lanes: Sequence[Lane]) -> Counter[tuple[str, ...]]:
    """How many tasks run, written another way than in the code: by everything that a cap may be on."""
    return Counter(
        key
        for lane in lanes
        for key in (("all",), ("tenant", lane.tenant), ("bucket", lane.bucket), ("task_type", lane.task_type))
    )


def cap(limits: Caps, key: tuple[str, ...]) -> float:
    found = {
        "all": limits.everything,
        "tenant": limits.tenant,
        "bucket": limits.bucket if key[-1] else None,
        "task_type": limits.task_types.get(key[-1]),
    }[key[0]]
    return float("inf") if found is None else found


def fits(limits: Caps, lanes: Sequence[Lane], lane: Lane) -> bool:
    now, more = counts(lanes), counts([lane])
    return all(now[key] + 1 <= cap(limits, key) for key in more)


def leaves_half(limits: Caps, waiting: Sequence[Lane], lane: Lane) -> bool:
    """Return whether a task of a lane may start beside the large ones whose work has not begun."""
    now, more = counts([one for one in waiting if not one.is_small]), counts([lane])
    return lane.is_small or all(now[key] + 1 <= math.ceil(min(cap(limits, key), 10**9) / 2) for key in more)


@settings(max_examples=examples(150))
@given(waiting(), running(), LIMITS)
def test_no_cap_is_exceeded_and_no_room_is_left_that_a_waiting_task_may_use(queue, now, limits):
    chosen = admitted(queue, now, limits)
    lanes = [one.lane for one in now]
    unbegun = [one.lane for one in now if not one.is_begun]
    for one in chosen:
        assert fits(limits, lanes, one.lane)
        assert leaves_half(limits, unbegun, one.lane)
        lanes.append(one.lane)
        unbegun.append(one.lane)
    assert len(chosen) <= room(now, limits)
    left = set(queue) - set(chosen)
    if len(chosen) < room(now, limits):
        assert not any(fits(limits, lanes, one.lane) and leaves_half(limits, unbegun, one.lane) for one in left)
    assert len(set(chosen)) == len(chosen)


@settings(max_examples=examples(150))
@given(waiting(), running(), LIMITS, st.randoms())
def test_each_admitted_task_had_the_best_right_to_its_turn(queue, now, limits, dice):
    chosen = admitted(queue, now, limits)
    shuffled = list(queue)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert admitted(shuffled, now, limits) == chosen
    lanes, left = [one.lane for one in now], set(queue)
    unbegun = [one.lane for one in now if not one.is_begun]
    for one in chosen:
        rivals = [
            other for other in left if fits(limits, lanes, other.lane) and leaves_half(limits, unbegun, other.lane)
        ]
        assert one.lane.priority == max(other.lane.priority for other in rivals)
        rivals = [other for other in rivals if other.lane.priority == one.lane.priority]
        by_tenant = Counter(lane.tenant for lane in lanes)
        assert by_tenant[one.lane.tenant] == min(by_tenant[other.lane.tenant] for other in rivals)
        alike = [other for other in rivals if other.lane == one.lane]
        assert (one.since, one.task_id) == min((other.since, other.task_id) for other in alike)
        lanes.append(one.lane)
        unbegun.append(one.lane)
        left.remove(one)


def queue_of(lane: Lane, count: int, *, after: timedelta = timedelta(0)) -> list[Queued]:
    return [Queued(f"{lane.text} {n:03d}", lane, NOW + after + n * SECOND) for n in range(count)]


def held(lane: Lane, count: int) -> list[Running]:
    return [Running(f"held {lane.text} {n}", lane, is_held=True) for n in range(count)]


def test_a_second_bucket_of_a_tenant_gets_its_share() -> None:
    first, second = Lane("sales", "lake", "TABLE_PURGE"), Lane("sales", "archive", "TABLE_PURGE")
    queue = queue_of(first, 50) + queue_of(second, 50, after=timedelta(hours=1))
    assert Counter(one.lane.bucket for one in admitted(queue, [], Caps(everything=10))) == {"lake": 5, "archive": 5}


def test_small_tables_have_half_of_the_places_however_many_large_ones_waited_before() -> None:
    large = Lane("sales", "lake", "TABLE_PURGE", is_small=False)
    small = replace(large, is_small=True)
    queue = queue_of(large, 50) + queue_of(small, 50, after=timedelta(hours=1))
    chosen = Counter(one.lane.is_small for one in admitted(queue, held(large, 6), Caps(everything=20)))
    assert chosen == {True: 10, False: 4}
    # Without small ones too, half of the places at once: the others when the jobs of these have begun.
    assert len(admitted(queue_of(large, 50), [], Caps(everything=20))) == 10
    assert len(admitted(queue_of(large, 50), held(large, 10), Caps(everything=20))) == 10
    wait = [replace(one, is_begun=False) for one in held(large, 8)]
    assert len(admitted(queue_of(large, 50), [*wait, *held(large, 4)], Caps(everything=20))) == 2
    assert len(admitted(queue_of(small, 50), [*wait, *held(large, 4)], Caps(everything=20))) == 8


def test_dispatched_tasks_without_a_holder_do_not_become_more_and_more() -> None:
    """Lambda is throttled: what was dispatched waits for its first invocation, and nothing more is added to it."""
    lane = Lane("sales", "lake", "TABLE_PURGE")
    starting = [Running(f"{n}", lane, is_held=False) for n in range(STARTING_AT_LEAST)]
    assert admitted(queue_of(lane, 50), starting, Caps(everything=1_000)) == ()
    assert len(admitted(queue_of(lane, 50), [*starting, *held(lane, 30)], Caps(everything=1_000))) == 5


# A lone surrogate is in no text of a lane: JSON from a request may not have one either.
ENCODED = st.characters(codec="utf-8")


@given(st.text(ENCODED), st.text(ENCODED), st.text(ENCODED, min_size=1), st.integers(0, 9), st.booleans())
def test_a_lane_is_read_back_from_its_text(tenant: str, bucket: str, kind: str, priority: int, is_small: bool) -> None:
    lane = Lane.of(kind, Traits(tenant, bucket, is_small, priority))
    assert Lane.parse(lane.text) == lane
    assert len(lane.text) < 700


def test_a_lane_of_another_form_is_of_an_unknown_kind_and_long_names_stay_different() -> None:
    assert Lane.parse("v2:sales") == Lane("", "", part("v2:sales"))
    assert part("ä" * 300 + "1") != part("ä" * 300 + "2")


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_outside_of_its_range_is_refused(priority: int) -> None:
    with pytest.raises(ValueError, match="priority"):
        Lane.of("TABLE_PURGE", Traits(priority=priority))


# ---- properties


def test_caps_are_read_from_the_properties() -> None:
    properties = {"all": "100", "tenant": "50", "bucket": "20", "task-type.acme.report": "3", "task-type.B": "90"}
    limits = Policies.from_properties({f"delegation.limits.{name}": value for name, value in properties.items()}).limits
    assert limits == Caps(100, 50, 20, {"acme.report": 3, "B": 90})
    assert Policies.from_properties({}).limits is None


@pytest.mark.parametrize(
    "name_and_value",
    ["all=0", "all=many", "tenant=-1", "everything=5", "task-type.=5", "bucket=1.5", "kind.A=3", "type.A=3"],
)
def test_a_wrong_cap_is_named(name_and_value: str) -> None:
    name, _, value = name_and_value.partition("=")
    with pytest.raises(InvalidProperty, match=f"delegation.limits.{name}"):
        Policies.from_properties({f"delegation.limits.{name}": value})
