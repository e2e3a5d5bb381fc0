"""Each mutation with its gateway killed at each of its calls, then repeated: one effect, and a success."""

import json

import pytest

from tests.unit.gateway.keys.mutations import CASES, Case
from tests.unit.gateway.keys.stand_in import AFTER_LEASE, Life, World, kill


def body_of(answer):
    """A body without what differs in a repeat: vended credentials, and a staged table's new UUID and time."""
    if not answer.body:
        return None
    document = json.loads(answer.body)
    for name in ("config", "storage-credentials"):
        document.pop(name, None)
    return document


def undisturbed(case: Case) -> tuple[list[str], object]:
    world, life = World(), Life()
    case.prepare(world)
    answer = world.call(case.request(world), life)
    assert answer is not None
    assert answer.status in case.statuses, answer.body
    assert (answer.header("Idempotency-Replayed"), case.effects(world)) == (None, 1)
    again = world.call(case.request(world))
    assert (again.status, again.header("Idempotency-Replayed"), case.effects(world)) == (answer.status, "true", 1)
    assert body_of(again) == body_of(answer)
    world.close()
    return life.points, body_of(answer)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mutation_whose_gateway_was_killed_anywhere_is_applied_once_and_repeated_with_success(case: Case) -> None:
    points, answered = undisturbed(case)
    assert [point for point in points if "read" not in point] == [
        "before reserve", "after reserve", "before change", "after change", "before finalize", "after finalize",
    ]  # fmt: skip
    for at in range(len(points)):
        world = World()
        case.prepare(world)
        request = case.request(world)
        assert world.call(request, Life(lambda _point, number, at=at: number == at, kill)) is None
        world.clock.advance(AFTER_LEASE)
        again = world.call(request)
        assert again is not None
        assert again.status in case.statuses, (points[at], again.body)
        assert case.effects(world) == 1, points[at]
        assert (body_of(again) or {}).keys() == (answered or {}).keys()
        replayed = world.call(request)
        assert (replayed.status, replayed.header("Idempotency-Replayed")) == (again.status, "true")
        assert case.effects(world) == 1
        world.close()
