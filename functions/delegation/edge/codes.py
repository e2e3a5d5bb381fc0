"""What each error code means and what to do about it: the table `codes.json`, from which docs/errors.md is made.

A code is in an answer's `error_code` and in a task's record. No answer needs this module.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class CodeMeaning:
    """A code's meaning, and what its reader does: the caller, or an operator of the service or of Polaris."""

    meaning: str
    action: str


@functools.cache
def codes() -> Mapping[str, Mapping[str, CodeMeaning]]:
    """Return the codes by chapter and name."""
    text = resources.files("delegation.edge").joinpath("codes.json").read_text(encoding="utf-8")
    return {
        chapter: {name: CodeMeaning(each["meaning"], each["action"]) for name, each in entries.items()}
        for chapter, entries in json.loads(text).items()
    }
