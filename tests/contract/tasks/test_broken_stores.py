"""The contract suite catches deliberately broken stores, each by the check of the promise that it breaks."""

import pytest

from delegation.tasks.contract import CONCURRENT, SEQUENTIAL
from delegation.tasks.contract.support import Check
from delegation.tasks.errors import TaskError
from tests.contract.tasks.broken.stores import BROKEN, Broken

PROMISES = [
    pytest.param(broken, check, id=f"{broken.store.__name__}-{check.__name__}")
    for broken in BROKEN
    for check in broken.breaks
]


@pytest.mark.parametrize(("broken", "check"), PROMISES)
def test_the_suite_catches_a_broken_store(broken: Broken, check: Check) -> None:
    assert check in (*SEQUENTIAL, *CONCURRENT)
    with pytest.raises((AssertionError, TaskError, pytest.fail.Exception)):
        check(broken.build())


def test_every_check_catches_some_broken_store() -> None:
    """A check that no broken store fails might be unable to fail."""
    used = {check for broken in BROKEN for check in broken.breaks}
    assert {check.__name__ for check in (*SEQUENTIAL, *CONCURRENT)} - {check.__name__ for check in used} == set()
