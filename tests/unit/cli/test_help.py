"""Every command and option has a help text, of which docs/command.md is made, and advice names only what exists."""

import re
from importlib.metadata import entry_points

import pytest
from typer.main import get_command

from delegation.cli.main import BUILT_IN, ENTRY_POINTS, build
from delegation.edge.codes import by_code, codes, codes_of_the_command
from tests.paths import ROOT

STANDARD = {"help", "install_completion", "show_completion"}


def commands(command, words=("delegation",)):
    """Yield each command and group below, with the words that call it."""
    yield " ".join(words), command
    inner = getattr(command, "loaders", None) or getattr(command, "commands", {})
    for name in sorted(inner):
        yield from commands(command.loaded(name) if hasattr(command, "loaded") else inner[name], (*words, name))


ALL = dict(commands(get_command(build(entry_points(group=ENTRY_POINTS)))))
LEAVES = [words for words, command in ALL.items() if not hasattr(command, "commands")]


def options(words):
    return [parameter for parameter in ALL[words].params if parameter.name not in STANDARD]


@pytest.mark.parametrize("words", ALL)
def test_command_has_help(words):
    assert (ALL[words].help or "").strip()


@pytest.mark.parametrize("words", LEAVES)
def test_every_option_has_help(words):
    assert [parameter.name for parameter in options(words) if not (parameter.help or "").strip()] == []


CALLED = re.compile(r"`(delegation [a-z][^`]*)`")
ADVICE = [
    *(code.action for chapter in codes().values() for code in chapter.values()),
    *(code.command for code in by_code().values() if code.command),
    *(code.action for code in codes_of_the_command().values()),
]
PAGE = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^    (delegation [a-z][^\n]+)$", PAGE, re.MULTILINE)


def test_advice_and_examples_name_commands_and_options_that_exist():
    called = [found for text in ADVICE for found in CALLED.findall(text)] + EXAMPLES
    assert len(called) > 15
    wrong = []
    for text in called:
        words = [word for word in text.split() if word.islower() and not word.startswith("-")]
        known = [" ".join(words[:at]) for at in range(2, len(words) + 1) if " ".join(words[:at]) in ALL]
        params = ALL[known[-1]].params if known else ()
        names = {name for one in params for name in (*one.opts, *one.secondary_opts)}
        if not known or not set(re.findall(r"--[a-z-]+", text)) <= names:
            wrong.append(text)
    assert wrong == []


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_takes_json(words):
    assert "--json" in [name for parameter in options(words) for name in parameter.opts]


@pytest.mark.parametrize("name", BUILT_IN)
def test_help_of_an_unimported_command_is_that_of_the_command(name):
    assert BUILT_IN[name].help == (ALL[f"delegation {name}"].help or "").split("\n\n")[0].replace("\n", " ")
