"""Each mutation with its gateway killed at each of its calls, then repeated: at most one effect, and the truth.

Where the state shows that it was applied the repeat is a success, and where it proves that it was not, it is applied
now. Otherwise the outcome is answered as unknown, and nothing more is done.
"""

import json

import pytest

from tests.unit.gateway.keys.mutations import CASES, Case
from tests.unit.gateway.keys.stand_in import AFTER_LEASE, KeyedCatalog, Life, kill


def body_of(answer):
    """A body without what differs in a repeat: vended credentials, and a staged table's new UUID and time."""
    if not answer.body:
        return None
    document = json.loads(answer.body)
    for name in ("config", "storage-credentials"):
        document.pop(name, None)
    return document


def undisturbed(case: Case) -> tuple[list[str], object]:
    world, life = KeyedCatalog(), Life()
    case.prepare(world)
    request = case.request(world)
    answer = world.call(request, life)
    assert answer.status in case.statuses, answer.body
    assert (answer.header("Idempotency-Replayed"), case.effects(world)) == (None, 1)
    again = world.call(request)
    assert (again.status, again.header("Idempotency-Replayed"), case.effects(world)) == (answer.status, "true", 1)
    assert body_of(again) == body_of(answer)
    world.close()
    return life.points, body_of(answer)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mutation_killed_anywhere_is_applied_at_most_once_and_answered_with_the_truth(
    case: Case,
) -> None:
    points, answered = undisturbed(case)
    assert [point for point in points if "read" not in point] == [
        "before reserve", "after reserve", "before change", "after change", "before finalize", "after finalize",
    ]  # fmt: skip
    for at in range(len(points)):
        world = KeyedCatalog()
        case.prepare(world)
        request = case.request(world)
        assert world.call(request, Life(lambda _point, number, at=at: number == at, kill)) is None
        world.clock.advance(AFTER_LEASE)
        is_reserved = points.index("after reserve") <= at
        effects, is_stored = case.effects(world) if points.index("before change") <= at else 0, points[at] == points[-1]
        again = world.call(request)
        if is_reserved and not is_stored and not (case.proves or (effects and case.shows)):
            assert (again.status, b"CommitStateUnknownException" in again.body) == (500, True), (points[at], again.body)
            assert case.effects(world) == effects
            world.close()
            continue
        assert again.status in case.statuses, (points[at], again.body)
        assert case.effects(world) == 1, points[at]
        assert (body_of(again) or {}).keys() == (answered or {}).keys()
        replayed = world.call(request)
        assert (replayed.status, replayed.header("Idempotency-Replayed")) == (again.status, "true")
        assert case.effects(world) == 1
        world.close()
