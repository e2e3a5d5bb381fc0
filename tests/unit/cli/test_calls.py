"""Commands whose options are rows of the table of an operation."""

import pytest
import typer
from typer.testing import CliRunner

from delegation.cli.calls import Call, command, flag_of
from delegation.cli.submit import refused
from delegation.tasks.options import Argument, InvalidOption, Option, OptionTable, SetBy

KEPT = Option(
    name="kept-ms",
    by=SetBy.CALLER,
    pattern="[1-9][0-9]*",
    expected="a number",
    argument=Argument("How long.", "AGE", "kept"),
)
NUMBER = Option(name="number", by=SetBy.CALLER, pattern="[0-9]+", argument=Argument("How many.", type=int, least=1))
IDS = Option(name="ids", by=SetBy.CALLER, pattern="[0-9,]+", argument=Argument("Which.", "ID", "id", type=list[int]))
ALL = Option(name="all", by=SetBy.CALLER, values=("false", "true"), argument=Argument("All of it.", type=bool))
NOT_HERE = Option(name="engine", by=SetBy.CALLER, values=("inline", "spark"))
TABLE = OptionTable("delegation.test.", (KEPT, NUMBER, NOT_HERE, IDS, ALL))


@pytest.fixture
def calls():
    return []


@pytest.fixture
def app(calls):
    app = typer.Typer()

    @command(app, "look", "yes", table=TABLE)
    def look(call: Call, place: str) -> None:
        """Look."""
        calls.append((place, dict(call.given), call.yes, call.as_json))

    return app


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ([], {}),
        (["--kept", "7d", "--number", "2"], {"kept-ms": "7d", "number": "2"}),
        (["--id", "3", "--id", "-4", "--all"], {"ids": "3,-4", "all": "true"}),
    ],
)
def test_a_row_with_an_argument_is_an_option_whose_value_is_that_of_a_request(app, calls, words, given):
    result = CliRunner().invoke(app, ["here", *words, "--yes"])
    assert (result.exit_code, calls) == (0, [("here", given, True, False)])


@pytest.mark.parametrize("words", [["--number", "0"], ["--id", "x"], ["--engine", "spark"], ["--kept-ms", "1"]])
def test_what_a_row_does_not_have_is_misuse(app, calls, words):
    assert (CliRunner().invoke(app, ["here", *words]).exit_code, calls) == (2, [])


def test_a_refusal_names_the_option_of_the_command():
    error = refused(TABLE, InvalidOption("kept-ms", "a number"), "kept-ms")
    assert (error.param_hint, error.message) == ("--kept", "must be a number")
    assert flag_of(NOT_HERE) == "ENGINE"
