"""The commands in docs/command.md, from the help of each: `make regenerate` writes them.

What stands above the heading "Commands" is written by hand.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum, EnumType
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from delegation.cli.doctor.checks import CHECKS
from delegation.cli.main import ENTRY_POINTS, build

PAGE: Final = Path(__file__).parent.parent / "docs" / "command.md"
EXAMPLES: Final = Path(__file__).parent / "command_examples.txt"
HEADING: Final = "## Commands\n"
PLACEHOLDERS: Final = {int: "N", float: "N", Path: "FILE"}
USED_EVERYWHERE: Final = 3
"""What so many commands take, with the same help, is described once."""
TAKEN_BY_ALL: Final = ("--json", "--stack FILE")
_BY_ALL: Final = (
    "Every command takes `--json`. Commands that use the service or a store also take `--stack FILE`, the stack.json of"
    "\na local stack (default: the stack in the settings, else .local/stack.json)."
)
UNCLEAR_CHECKS: Final = {"paused", "aws", "callers", "catalog", "names", "views", "grants"}
"""Checks whose ids do not say what is checked."""


def leaves(command: Any, words: tuple[str, ...] = ("delegation",)) -> Iterator[tuple[str, Any]]:
    """Yield each command with the words that call it, in the order of the help."""
    inner = getattr(command, "loaders", None) or getattr(command, "commands", None)
    if not inner:
        if not command.hidden:
            yield " ".join(words), command
        return
    for name in inner:
        yield from leaves(command.loaded(name) if hasattr(command, "loaded") else inner[name], (*words, name))


def flat(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|").replace("<", "&lt;")


def signature(parameter: Any) -> str:
    """Return how an argument or an option is written, for instance `--retain-last N`."""
    if parameter.param_type_name == "argument":
        written: str = (parameter.metavar or parameter.name.upper()).removesuffix("...")
        return written[1:-1] if written[0] in "[{" else written
    names = [*parameter.opts, *parameter.secondary_opts]
    long = [name for name in names if name.startswith("--")] or names
    if parameter.is_flag or parameter.count:
        return "/".join(long) if parameter.secondary_opts else "`, `".join(long)
    taken = parameter.type_descriptor.annotation
    choices = isinstance(taken, EnumType)
    value = "|".join(str(each.value) for each in taken) if choices else PLACEHOLDERS.get(taken, "TEXT")
    return f"{'`, `'.join(long)} {parameter.metavar or value}"


def described(parameter: Any) -> str:
    """Return the help of an option, with its default where the help has none."""
    text, default = flat(parameter.help), parameter.default
    if parameter.param_type_name == "argument":
        return text
    default = default.value if isinstance(default, Enum) else default
    known = isinstance(default, str | int | float) and not isinstance(default, bool) and default != ""
    return f"{text} Default: {default}." if known and "Default" not in text else text


def examples() -> Mapping[str, list[str]]:
    """Return the example lines of each command, from paragraphs that begin with its words."""
    sections = {}
    for block in EXAMPLES.read_text(encoding="utf-8").strip().split("\n\n"):
        words, *lines = block.split("\n")
        sections[words] = lines
    return sections


def wrapped(text: str, indent: str = "") -> str:
    """Return a paragraph or an item of a list in lines of ordinary length."""
    return textwrap.fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def section(words: str, command: Any, lines: list[str], everywhere: Mapping[str, str]) -> str:
    parts = [f"### `{words}`"]
    if lines:
        parts.append("\n".join(f"    {line}" for line in lines))
    parts.extend(wrapped(flat(paragraph)) for paragraph in (command.help or "").split("\n\n"))
    items, common = [], []
    for parameter in command.params:
        if parameter.name in {"help", "install_completion", "show_completion"} or getattr(parameter, "hidden", False):
            continue
        written = signature(parameter)
        if written in TAKEN_BY_ALL:
            continue
        if everywhere.get(written) == described(parameter):
            common.append(f"`{written.split()[0]}`")
        else:
            items.append(wrapped(f"- `{written}`: {described(parameter)}", "  "))
    if common:
        items.append(wrapped(f"- Also {', '.join(common)}.", "  "))
    if items:
        parts.append("\n".join(items))
    if words == "delegation doctor":
        deployed = "with `--deployed`: "
        parts.append(
            wrapped(
                "`--json` prints a document of [doctor.schema.json](doctor.schema.json). Compare `id`, `subject` and"
                " `ok` (`null`: not checked); `detail` and `fix` are for people. A check that is not reached has no"
                " entry."
            )
        )
        for heading, chosen in (("Ids", False), ("Ids with `--deployed`", True)):
            names = [
                f"`{name}` ({meaning})" if name in UNCLEAR_CHECKS else f"`{name}`"
                for name, meaning in CHECKS.items()
                if meaning.startswith(deployed) is chosen
            ]
            parts.append(wrapped(f"{heading}: {', '.join(names)}."))
    return "\n\n".join(parts)


def commands() -> str:
    """Return the part of the page below the heading."""
    all_leaves = list(leaves(get_command(build(entry_points(group=ENTRY_POINTS)))))
    taken = [each for _, command in all_leaves for each in command.params if each.name != "help"]
    taken = [each for each in taken if signature(each) not in TAKEN_BY_ALL]
    counted = Counter((signature(each), described(each)) for each in taken)
    everywhere = {written: text for (written, text), times in counted.items() if times >= USED_EVERYWHERE}
    lines = examples()
    if unknown := lines.keys() - dict(all_leaves).keys():
        raise ValueError(f"{EXAMPLES.name} has examples of unknown commands: {', '.join(sorted(unknown))}")
    table = ["| several commands take | |", "|---|---|"]
    table += [f"| `{written.replace('|', chr(92) + '|')}` | {text} |" for written, text in everywhere.items()]
    sections = [section(words, command, lines.get(words, []), everywhere) for words, command in all_leaves]
    return "\n\n".join([_BY_ALL, "\n".join(table), *sections]) + "\n"


def files() -> dict[Path, str]:
    introduction = PAGE.read_text(encoding="utf-8").partition(HEADING)[0]
    return {PAGE: re.sub(r"\n{3,}", "\n\n", f"{introduction}{HEADING}\n{commands()}")}
