"""The catalogue has every code, and docs/errors.md is made from it."""

import pytest

from delegation.edge import answers
from delegation.edge.codes import codes
from delegation.tasks.life import transitions
from infra import error_page

KNOWN = {name for chapter in codes().values() for name in chapter}


def test_no_code_is_in_two_chapters() -> None:
    assert len(KNOWN) == sum(len(chapter) for chapter in codes().values())


def test_every_code_of_an_error_or_an_answer_is_described() -> None:
    assert set(error_page.statuses()) - KNOWN == set()


@pytest.mark.parametrize("code", [transitions.LOST, transitions.CANCELLED, transitions.HANDED_OVER])
def test_the_codes_of_transitions_are_described(code: str) -> None:
    assert code in KNOWN


def test_a_description_says_what_happened_and_what_to_do() -> None:
    for chapter in codes().values():
        for name, code in chapter.items():
            assert code.meaning.endswith("."), name
            assert code.action.endswith("."), name


def test_a_code_answered_as_a_conflict_has_that_status_on_the_page() -> None:
    found = error_page.statuses()
    assert all(409 in found[code][0] for code in answers.CONFLICT)
