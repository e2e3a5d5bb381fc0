"""The catalogue has every code, and docs/errors.md is made from it."""

import re

import pytest

from delegation.edge.codes import by_code as codes_by_name
from delegation.edge.codes import codes, codes_of_the_command
from delegation.tasks.life import transitions
from infra import error_page
from infra.gateway_answers import ANSWERS

KNOWN = {name for chapter in codes().values() for name in chapter}


def test_no_code_is_in_two_chapters() -> None:
    assert len(KNOWN) == sum(len(chapter) for chapter in codes().values())


@pytest.mark.parametrize("code", [transitions.LOST, transitions.CANCELLED, transitions.HANDED_OVER])
def test_the_codes_of_transitions_are_described(code: str) -> None:
    assert code in KNOWN


def test_a_description_says_what_happened_and_what_to_do() -> None:
    for chapter in codes().values():
        for name, code in chapter.items():
            assert code.meaning.endswith("."), name
            assert code.action.endswith("."), name
            assert code.command is None or code.command.endswith("."), name


def test_api_gateways_own_answers_have_the_status_of_their_codes() -> None:
    given = {(answer.error_code, answer.status) for answer in ANSWERS.values() if answer.status is not None}
    assert {(code, codes_by_name()[code].status or 500) for code, _ in given} == given


def test_the_page_has_the_status_of_each_code() -> None:
    page = error_page.page()
    assert all(re.search(rf"`{name}` {code.status or 500}(↻\??)? \|", page) for name, code in codes_by_name().items())
    assert all(f"`{name}` | {code.meaning} | {code.action} |" in page for name, code in codes_of_the_command().items())


def test_advice_at_a_terminal_is_not_the_same_as_that_to_a_caller() -> None:
    assert {name for name, code in codes_by_name().items() if code.command == code.action} == set()
