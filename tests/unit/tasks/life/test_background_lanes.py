"""Tasks in the background: no other task waits for them, whatever runs, and they take what room is left."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.tasks.life.lanes import (
    BACKGROUND_AT_ONCE,
    HIGHEST,
    STARTING_AT_LEAST,
    Caps,
    Lane,
    Queued,
    Running,
    Traits,
    admitted,
    blocking,
)
from tests.effort import examples

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)
UPKEEP = Lane.of("EXPIRY", Traits("ann", "b1", is_small=False, is_background=True))
DROP = Lane.of("PURGE", Traits("ann", "b1", is_small=False, priority=0))

LANES = st.builds(
    lambda kind, tenant, bucket, small, priority, background: Lane.of(
        kind, Traits(tenant, bucket, is_small=small, priority=priority, is_background=background)
    ),
    st.sampled_from(["PURGE", "EXPIRY"]),
    st.sampled_from(["", "ann", "bob"]),
    st.sampled_from(["", "b1", "b2"]),
    st.booleans(),
    st.integers(0, HIGHEST),
    st.booleans(),
)
CAPS = st.builds(
    Caps,
    st.none() | st.integers(1, 6),
    st.none() | st.integers(1, 4),
    st.none() | st.integers(1, 4),
    st.dictionaries(st.sampled_from(["PURGE", "EXPIRY"]), st.integers(1, 4)),
)
WAITING = st.lists(LANES, max_size=20).map(
    lambda lanes: [Queued(f"w{n}", lane, NOON + timedelta(seconds=n)) for n, lane in enumerate(lanes)]
)
RUNNING = st.lists(st.tuples(LANES, st.booleans(), st.booleans()), max_size=40).map(
    lambda all_: [Running(f"r{n}", lane, held, begun) for n, (lane, held, begun) in enumerate(all_)]
)


def test_a_lane_in_the_background_comes_back_from_its_text_and_sorts_last() -> None:
    assert Lane.parse(UPKEEP.text) == UPKEEP
    assert Lane.parse(DROP.text) == DROP
    assert UPKEEP.text.startswith("9/")
    assert UPKEEP.words == "tenant ann, bucket b1, large EXPIRY, in the background"


def test_a_drop_starts_at_once_beside_any_number_of_tasks_in_the_background() -> None:
    running = [Running(f"r{n}", UPKEEP, is_held=False, is_begun=False) for n in range(STARTING_AT_LEAST + 5)]
    caps = Caps(everything=1, tenant=1, bucket=1)
    drop, more = Queued("drop", DROP, NOON), Queued("more", UPKEEP, NOON - timedelta(days=1))
    assert admitted([more, drop], running, caps) == (drop,)
    assert blocking(DROP, running, caps) == ()
    assert blocking(UPKEEP, running, caps)


def test_tasks_in_the_background_wait_for_the_room_beside_everything() -> None:
    running = [Running("r", DROP, is_held=True)]
    upkeep = Queued("upkeep", UPKEEP, NOON)
    assert admitted([upkeep], running, Caps(bucket=1)) == ()
    assert admitted([upkeep], running, Caps(bucket=3)) == (upkeep,)
    enough = [Running(f"r{n}", UPKEEP, is_held=True) for n in range(BACKGROUND_AT_ONCE)]
    assert admitted([upkeep], enough, Caps()) == ()
    assert [reason for reason in blocking(UPKEEP, enough, Caps()) if f"{BACKGROUND_AT_ONCE} background" in reason]


@settings(max_examples=examples(300), deadline=None)
@given(WAITING, RUNNING, CAPS)
def test_others_are_admitted_as_if_nothing_were_in_the_background(waiting, running, caps):
    chosen = admitted(waiting, running, caps)
    first = tuple(one for one in chosen if not one.lane.is_background)
    alone = admitted(
        [one for one in waiting if not one.lane.is_background],
        [one for one in running if not one.lane.is_background],
        caps,
    )
    assert first == alone
    assert chosen[: len(first)] == first
    behind = [one for one in chosen if one.lane.is_background]
    in_all = len(running) + len(chosen)
    assert not behind or caps.everything is None or in_all <= caps.everything
    assert not behind or sum(one.lane.is_background for one in (*running, *behind)) <= BACKGROUND_AT_ONCE
