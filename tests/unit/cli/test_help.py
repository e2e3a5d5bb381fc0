"""Every command and option explains itself, and stands in docs/command.md."""

import re

import pytest
from typer.main import get_command

from delegation.cli.main import BUILT_IN as PLACES
from delegation.cli.main import build
from tests.paths import ROOT

DOCS = ROOT / "docs" / "command.md"
BUILT_IN = {"help", "install_completion", "show_completion"}


def commands(command, words=("delegation",)):
    """Each command and group below, with the words that call it."""
    yield " ".join(words), command
    inner = getattr(command, "loaders", None) or getattr(command, "commands", {})
    for name in sorted(inner):
        yield from commands(command.loaded(name) if hasattr(command, "loaded") else inner[name], (*words, name))


WHOLE = get_command(build(()))
ALL = dict(commands(WHOLE))
LEAVES = [words for words, command in ALL.items() if not hasattr(command, "commands")]


def options(words):
    return [parameter for parameter in ALL[words].params if parameter.name not in BUILT_IN]


def section(words):
    found = re.search(
        rf"^### `{re.escape(words)}`\n(.*?)(?=^##|\Z)", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return found[1] if found else None


def test_the_commands_of_this_release_are_there():
    assert set(LEAVES) >= {
        "delegation local up",
        "delegation purge",
        "delegation submit",
        "delegation tasks history",
        "delegation tasks list",
        "delegation tasks show",
        "delegation tasks watch",
    }


@pytest.mark.parametrize("words", ALL)
def test_command_has_help(words):
    assert (ALL[words].help or "").strip()


@pytest.mark.parametrize("words", LEAVES)
def test_every_option_has_help(words):
    assert [parameter.name for parameter in options(words) if not (parameter.help or "").strip()] == []


@pytest.mark.parametrize("words", LEAVES)
def test_command_and_every_option_stand_in_the_docs(words):
    text = section(words)
    assert text is not None, f"docs/command.md has no section `{words}`"
    names = [name for parameter in options(words) if parameter.param_type_name == "option" for name in parameter.opts]
    assert [name for name in names if name.startswith("--") and f"`{name}" not in text] == []


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_takes_json(words):
    assert "--json" in [name for parameter in options(words) for name in parameter.opts]


def test_docs_describe_no_command_that_is_gone():
    described = re.findall(r"^### `(delegation [^`]+)`", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(described) == sorted(LEAVES)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_said_of_a_command_without_importing_it_is_what_it_says_itself(name):
    assert PLACES[name].help == (ALL[f"delegation {name}"].help or "").split("\n\n")[0].replace("\n", " ")
