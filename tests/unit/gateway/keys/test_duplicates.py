"""64 duplicates of each mutation at once, with gateways killed in between: at most one effect, and the truth."""

import itertools
import json
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from tests.unit.gateway.keys.mutations import CASES, Case
from tests.unit.gateway.keys.stand_in import AFTER_LEASE, KeyedCatalog, Life, kill

DUPLICATES = 64
DIE = 6


class DuplicateCalls:
    """The gateways that answer the duplicates: the first holders of the key are killed, each a call later."""

    def __init__(self, world: KeyedCatalog) -> None:
        self._world = world
        self._together = threading.Barrier(DUPLICATES)
        self._holders = itertools.count()
        self.killed = 0

    def call(self, request: CatalogRequest) -> CatalogAnswer | None:
        left = [sys.maxsize]

        def is_fatal(point: str, _number: int) -> bool:
            left[0] -= 1
            if point in {"after reserve", "after take over"}:
                number = next(self._holders)
                left[0] = number if number < DIE else sys.maxsize
            return left[0] == 0

        def die() -> None:
            self.killed += 1
            if "after finalize" not in life.points:
                # Nobody else holds the key until the lease of the dead is over.
                self._world.clock.advance(AFTER_LEASE)
            kill()

        life = Life(is_fatal, die)
        self._together.wait()
        return self._world.call(request, life)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_duplicates_have_at_most_one_effect_and_hear_the_truth(world: KeyedCatalog, case: Case) -> None:
    case.prepare(world)
    request, calls = case.request(world), DuplicateCalls(world)
    with ThreadPoolExecutor(DUPLICATES) as pool:
        answers = list(pool.map(calls.call, [request] * DUPLICATES))
    world.clock.advance(AFTER_LEASE)
    last = world.call(request)
    assert calls.killed > 0
    answered = [answer for answer in (*answers, last) if answer is not None]
    seen = Counter(answer.status for answer in answered)
    assert set(seen) <= case.statuses | {500, 504}
    kinds = {json.loads(answer.body)["error"]["type"] for answer in answered if answer.status >= 500}
    assert kinds <= {"CommitStateUnknownException"}
    is_known = bool(set(seen) & case.statuses)
    assert case.effects(world) in ({1} if is_known or case.proves else {0, 1})
    if case.proves or (case.effects(world) and case.shows):
        assert last.status in case.statuses, last.body
