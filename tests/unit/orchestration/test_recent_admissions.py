"""For how long an admission counts that the index does not show, or showed once."""

import itertools

import pytest

from delegation.tasks.life.lanes import Lane, Traits
from delegation.tasks.stores.admission import Recent, Register
from tests.kit.tasks.builders import NOW, SECOND
from tests.unit.orchestration.test_admission import TASK_TYPE, NotedAdmission

LANE = Lane.of(TASK_TYPE, Traits())


@pytest.mark.parametrize(
    ("is_shown", "seconds", "counts"),
    [(True, 1.9, True), (True, 2, False), (False, 9.9, True), (False, 10, False)],
)
def test_an_admission_counts_until_the_index_has_settled(is_shown: bool, seconds: float, counts: bool) -> None:
    site = NotedAdmission()
    task_id = site.submit()
    if is_shown:
        site.tasks.dispatching.admit(task_id)
    site.clock.now = NOW + seconds * SECOND
    _, recent = site.admission._count(Register(1, (Recent(task_id, LANE, NOW),)), frozenset())
    assert [one.task_id for one in recent] == [task_id] * counts


def test_an_admission_that_has_ended_counts_no_more() -> None:
    site = NotedAdmission()
    task_id = site.submit()
    register = Register(1, (Recent(task_id, LANE, NOW),))
    assert site.admission._count(register, frozenset({task_id})) == ((), ())


def test_dispatches_without_an_attempt_are_ever_farther_apart() -> None:
    """Without a backoff a task that cannot start would take a place every grace."""
    site = NotedAdmission()
    site.submit()
    times = []
    for _ in range(60 * 24):
        site.clock.advance(60 * SECOND)
        before = len(site.started)
        site.sweep()
        site.admission.run()
        if len(site.started) > before:
            times.append(site.clock())
        if len(times) == 6:
            break
    gaps = [later - former for former, later in itertools.pairwise(times)]
    assert len(gaps) == 5
    assert gaps == sorted(gaps)
    assert gaps[-1] >= 4 * gaps[0]
