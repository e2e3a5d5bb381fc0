"""docs/errors.md: every error code, its meaning and what to do; `make regenerate` writes it."""

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import delegation
from delegation.edge import answers
from delegation.edge.codes import codes
from delegation.edge.problems import rule_of
from delegation.errors import DelegationError
from infra.environment.context import ROOT
from infra.gateway_answers import ANSWERS

PAGE: Final = ROOT / "docs" / "errors.md"
_ELSEWHERE: Final = (
    "delegation.cli",
    "delegation.client",
    "delegation.gateway",
    "delegation.persistence",
    "delegation.handlers",
)
"""Packages whose errors are in no answer of the API and in no task's record; importing a handler needs its settings."""
_INTRODUCTION: Final = """# Error codes

Every error answer has the code in `error_code` and a link to its line here in `type` (RFC 9457); a task's record has
the code of its last error. *Status* is that of an answer; a task that ends with the code is FAILURE whatever the
status. *By itself* says whether the same request, or the task's next attempt, may succeed without anybody acting. This
page is made by `make regenerate` from `functions/delegation/edge/codes.json` and the classes of errors.
"""


def statuses() -> Mapping[str, tuple[set[int], set[bool]]]:
    """Return, for each code, the statuses of its answers, and whether its errors may pass by themselves."""
    found: dict[str, tuple[set[int], set[bool]]] = {}

    def note(code: str, status: int, *, passes: bool) -> None:
        known = found.setdefault(code, (set(), set()))
        known[0].add(status)
        known[1].add(passes)

    for kind in error_classes():
        rule = rule_of(kind)
        note(rule.error_code or kind.code, rule.status, passes=kind.retryable)
    for code in (*answers.CONFLICT, *answers.NOT_FOUND, *answers.BAD_GATEWAY):
        note(code, answers.failure_status(code), passes=code in answers.RETRYABLE)
    for answer in ANSWERS.values():
        if answer.status is not None:
            note(answer.error_code, answer.status, passes=answer.retry_after_seconds is not None)
    return found


def error_classes() -> Iterator[type[DelegationError]]:
    """Yield every error class that an answer or a task's record can have."""
    for module in pkgutil.walk_packages(delegation.__path__, "delegation."):
        if not module.name.startswith(_ELSEWHERE) and module.name != "delegation.wiring.spark.job":
            importlib.import_module(module.name)
    pending: list[type[DelegationError]] = [DelegationError]
    while pending:
        kind = pending.pop()
        pending += kind.__subclasses__()
        if not kind.__module__.startswith(_ELSEWHERE):
            yield kind


def page() -> str:
    """Return the page."""
    known = statuses()
    parts = [_INTRODUCTION]
    for chapter, entries in codes().items():
        parts.append(f"\n## {chapter}\n\n| code | status | by itself | meaning | what to do |\n|---|---|---|---|---|\n")
        for name, code in entries.items():
            numbers, passes = known.get(name, ({500}, {False}))
            word = {frozenset({True}): "yes", frozenset({False}): "no"}.get(frozenset(passes), "see `retryable`")
            anchor, shown = f'<a id="{name}"></a>`{name}`', ", ".join(map(str, sorted(numbers)))
            parts.append(f"| {anchor} | {shown} | {word} | {code.meaning} | {code.action} |\n")
    return "".join(parts)


def files() -> dict[Path, str]:
    """Return the page as it is made."""
    return {PAGE: page()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
