"""What each error code means, its status, and what to do about it: the table `codes.json`.

A code is in an answer's `error_code` and in a task's record. The API's answers and docs/errors.md are made from it.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """A code's meaning, and what its reader does: the caller, or an operator of the service or of Polaris.

    `status` is that of an answer with the code, None for a code that no answer reveals; `retryable` is whether the same
    call may succeed without anybody acting, None where each answer says it.
    """

    meaning: str
    action: str
    status: int | None = None
    retryable: bool | None = False


@functools.cache
def codes() -> Mapping[str, Mapping[str, CodeMeaning]]:
    """Return the codes by chapter and name."""
    text = resources.files("delegation.edge").joinpath("codes.json").read_text(encoding="utf-8")
    return {
        chapter: {name: CodeMeaning(**each) for name, each in entries.items()}
        for chapter, entries in json.loads(text).items()
    }


@functools.cache
def by_code() -> Mapping[str, CodeMeaning]:
    """Return the meaning of every code."""
    return {name: each for entries in codes().values() for name, each in entries.items()}
