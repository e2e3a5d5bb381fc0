"""Every command and option has a help text and an entry in docs/command.md."""

import re
from importlib.metadata import entry_points

import pytest
from typer.main import get_command

from delegation.cli.main import BUILT_IN, ENTRY_POINTS, build
from delegation.edge.codes import by_code, codes, codes_of_the_command
from tests.paths import ROOT

DOCS = ROOT / "docs" / "command.md"
STANDARD = {"help", "install_completion", "show_completion"}


def commands(command, words=("delegation",)):
    """Yield each command and group below, with the words that call it."""
    yield " ".join(words), command
    inner = getattr(command, "loaders", None) or getattr(command, "commands", {})
    for name in sorted(inner):
        yield from commands(command.loaded(name) if hasattr(command, "loaded") else inner[name], (*words, name))


ALL = dict(commands(get_command(build(entry_points(group=ENTRY_POINTS)))))
FORMER_NAMES = [words for words, command in ALL.items() if command.hidden]
LEAVES = [words for words, command in ALL.items() if not hasattr(command, "commands") and words not in FORMER_NAMES]


def options(words):
    return [parameter for parameter in ALL[words].params if parameter.name not in STANDARD]


def section(words):
    found = re.search(
        rf"^### `{re.escape(words)}`\n(.*?)(?=^##|\Z)", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return found[1] if found else None


def test_all_commands_of_this_release_exist():
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
def test_docs_describe_the_command_and_every_option(words):
    text = section(words)
    assert text is not None, f"docs/command.md has no section `{words}`"
    names = [name for parameter in options(words) if parameter.param_type_name == "option" for name in parameter.opts]
    for_all = DOCS.read_text(encoding="utf-8").partition("\nEvery command takes ")[2].partition("\n\n")[0]
    by_all = re.findall(r"`(--[a-z]+)", for_all)
    assert [name for name in names if name.startswith("--") and f"`{name}" not in text and name not in by_all] == []


CALLED = re.compile(r"`(delegation [a-z][^`]*)`")
ADVICE = [
    *(code.action for chapter in codes().values() for code in chapter.values()),
    *(code.command for code in by_code().values() if code.command),
    *(code.action for code in codes_of_the_command().values()),
]


def test_advice_names_commands_and_options_that_exist():
    called = [found for text in ADVICE for found in CALLED.findall(text)]
    assert len(called) > 15
    wrong = []
    for text in called:
        words = [word for word in text.split() if word.islower() and not word.startswith("-")]
        known = [" ".join(words[:at]) for at in range(2, len(words) + 1) if " ".join(words[:at]) in ALL]
        names = [] if not known else [name for one in ALL[known[-1]].params for name in one.opts]
        if not known or not set(re.findall(r"--[a-z-]+", text)) <= set(names):
            wrong.append(text)
    assert wrong == []


@pytest.mark.parametrize("words", LEAVES)
def test_every_command_takes_json(words):
    assert "--json" in [name for parameter in options(words) for name in parameter.opts]


@pytest.mark.parametrize("words", FORMER_NAMES)
def test_docs_name_the_former_name_of_a_command(words):
    assert f"`{words}`" in DOCS.read_text(encoding="utf-8")


def test_docs_describe_no_other_command():
    described = re.findall(r"^### `(delegation [^`]+)`", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(described) == sorted(LEAVES)


@pytest.mark.parametrize("name", BUILT_IN)
def test_help_of_an_unimported_command_is_that_of_the_command(name):
    assert BUILT_IN[name].help == (ALL[f"delegation {name}"].help or "").split("\n\n")[0].replace("\n", " ")
