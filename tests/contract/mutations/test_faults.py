"""A fault at every I/O call of a mutation, then other callers: one effect, or a truthful 409.

In memory and, for a success that is repeated, on DynamoDB in moto; all of it on both with `make test THOROUGH=1`.
"""

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from delegation.idempotency.mutations import AnswerSource
from delegation.idempotency.reservations import MemoryReservationStore, MutationInProgress, ReservationStore
from tests.contract.mutations.world import AFTER_LEASE, Calls, Crashed, EffectfulCatalog, crash, fail
from tests.contract.task_tables import moto, reservation_store
from tests.contract.where import MOTO

FIRST = ("apply", "refuse", "break", "break after")


@pytest.fixture(scope="module", params=["memory", MOTO])
def stores(request: pytest.FixtureRequest) -> Iterator[Callable[[], ReservationStore]]:
    if request.param == "memory":
        yield MemoryReservationStore
    else:
        with moto() as client:
            yield lambda: reservation_store(client)


def faults(of: EffectfulCatalog, mode: str) -> Iterator[tuple[int, Callable[[str], None]]]:
    """Every call of a mutation that begins now, with every fault."""
    whole = Calls()
    of.call("trial", mode=mode, calls=whole)
    of.effects.clear()
    return itertools.product(range(len(whole.points)), (crash, fail))


def own_effects(world: EffectfulCatalog, key: str) -> int:
    return sum(one.key == key for one in world.effects)


@pytest.mark.parametrize("mode", FIRST)
def test_after_a_fault_at_any_call_others_find_one_effect_or_a_truthful_409(stores: Any, mode: str) -> None:
    others_find_one_effect(EffectfulCatalog(stores()), mode)


def test_on_dynamodb_others_find_one_effect_after_a_fault_at_any_call() -> None:
    with moto() as client:
        others_find_one_effect(EffectfulCatalog(reservation_store(client)), "apply")


def others_find_one_effect(world: EffectfulCatalog, mode: str) -> None:
    for number, (at, act) in enumerate(faults(world, mode)):
        key = f"{mode.replace(' ', '-')}-{number}"
        first = world.call(key, mode=mode, calls=Calls(at, act))
        applied = own_effects(world, key)
        if first.status is not None and first.status < 300:
            assert applied == 1
        at_once = world.call(key)
        if isinstance(at_once.error, MutationInProgress):
            # Only a holder that is dead, or could not say that it had ended, leaves a key that is held.
            assert isinstance(first.error, Crashed) or act is fail
            assert own_effects(world, key) == applied
        world.clock.advance(AFTER_LEASE)
        last = world.call(key)
        assert last.status in {200, 404}
        assert own_effects(world, key) == (1 if last.status == 200 else 0)
        if last.status == 404:
            assert mode == "refuse"
        again = world.call(key)
        assert (again.status, again.how) == (last.status, AnswerSource.REPLAYED)
        for seen in (first, at_once):
            if seen.performed is not None and seen.performed.answer.is_final:
                assert seen.status == last.status


def test_after_two_faults_in_a_row_others_find_one_effect(stores: Any) -> None:
    """The second falls on the call that reconciles."""
    world = EffectfulCatalog(stores())
    numbers = itertools.count()
    for at, act in faults(world, "apply"):
        reconciling = Calls()
        probe = f"probe-{next(numbers)}"
        world.call(probe, calls=Calls(at, act))
        world.clock.advance(AFTER_LEASE)
        world.call(probe, calls=reconciling)
        for second, then in itertools.product(range(len(reconciling.points)), (crash, fail)):
            key = f"twice-{next(numbers)}"
            world.call(key, calls=Calls(at, act))
            world.clock.advance(AFTER_LEASE)
            seen = world.call(key, calls=Calls(second, then))
            world.clock.advance(AFTER_LEASE)
            last = world.call(key)
            assert last.status == 200
            assert seen.status in {None, 200}
            assert own_effects(world, key) == 1


@pytest.mark.parametrize("pause", [timedelta(0), AFTER_LEASE], ids=["within the lease", "beyond the lease"])
@pytest.mark.parametrize("mode", FIRST)
def test_another_caller_at_any_moment_of_a_call_leaves_one_effect(stores: Any, mode: str, pause: timedelta) -> None:
    """A caller is paused at each of its calls in turn, while another performs the same mutation."""
    world = EffectfulCatalog(stores())
    points = [at for at, act in faults(world, mode) if act is crash]
    for at in points:
        key = f"{mode.replace(' ', '-')}-{at}"
        meanwhile = []

        def act(_point: str, key: str = key, meanwhile: list[Any] = meanwhile) -> None:
            world.clock.advance(pause)
            meanwhile.append(world.call(key))

        first = world.call(key, mode=mode, calls=Calls(at, act))
        world.clock.advance(AFTER_LEASE)
        last = world.call(key)
        assert own_effects(world, key) == (1 if last.status == 200 else 0)
        for seen in (first, *meanwhile):
            if seen.performed is None:
                assert isinstance(seen.error, MutationInProgress)
            elif seen.performed.answer.is_final:
                assert seen.status == last.status
