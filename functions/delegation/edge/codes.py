"""Each error code's meaning, its status, and what to do: the table `codes.json`. The API's `error_code`, the command's
advice and docs/errors.md are made from it."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Final

_OF_THE_COMMAND: Final = "The command"
"""The chapter of codes that only the command and the client have: no answer and no task's record has them."""
RETRIED: Final = "Wait for the retry."
"""The action while a task has attempts left."""


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """A code's meaning and the action of its reader: the caller, or an operator of the service or of Polaris. `status`
    is that of an answer, None for a code that no answer reveals. `retryable` is whether the same call may succeed later
    by itself, None if each answer states it. `command` is the action at a terminal, if other than `action`."""

    meaning: str
    action: str
    status: int | None = None
    retryable: bool | None = False
    command: str | None = None


@functools.cache
def codes() -> Mapping[str, Mapping[str, CodeMeaning]]:
    return {chapter: entries for chapter, entries in _table().items() if chapter != _OF_THE_COMMAND}


@functools.cache
def by_code() -> Mapping[str, CodeMeaning]:
    return {name: each for entries in codes().values() for name, each in entries.items()}


def codes_of_the_command() -> Mapping[str, CodeMeaning]:
    """Return the codes that only the command and the client have, by name."""
    return _table()[_OF_THE_COMMAND]


@functools.cache
def _table() -> Mapping[str, Mapping[str, CodeMeaning]]:
    text = resources.files("delegation.edge").joinpath("codes.json").read_text(encoding="utf-8")
    return {
        chapter: {name: CodeMeaning(**each) for name, each in entries.items()}
        for chapter, entries in json.loads(text).items()
    }
