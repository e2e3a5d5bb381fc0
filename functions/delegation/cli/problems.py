"""What a person at a terminal does next about each error: the advice of its code in the table of codes."""

import re
from collections.abc import Iterable, Iterator, Set
from typing import Final

from delegation.client.errors import NotAuthenticated, RequestRefused, RequestStillRunning
from polaris_common.errors import DelegationError

_AGAIN: Final = "Run the command again."
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_QUOTED: Final = re.compile(r"`[^`]*`")


def next_step(error: DelegationError, options: Set[str] | None = None) -> str:
    """Return one or two sentences; an error of another package may have its own as `next_step`.

    `options` are those of the command that failed: a sentence about another option is left out.
    """
    own: object = getattr(error, "next_step", None)
    if isinstance(own, str):
        return own
    advice = _advice(error)
    step = advice[0] if options is None else _of_command(advice, options)
    task_id = getattr(error, "delegation_task_id", None)
    return step.replace(" ID`", f" {task_id}`") if task_id else step


def _advice(error: DelegationError) -> tuple[str, ...]:
    """Return the advice of the first of an error's codes that the table has: at a terminal, and to a caller."""
    from delegation.edge.codes import by_code, codes_of_the_command  # noqa: PLC0415 - only failures need it

    table = {**codes_of_the_command(), **by_code()}
    known = next(table[code] for code in _codes(error) if code in table)
    if known.command is None and known.retryable:
        known = table[DelegationError.code]  # the action is a caller's of the API; a person runs the command again
    return tuple(filter(None, (known.command, known.action)))


def _codes(error: DelegationError) -> Iterator[str]:
    """Yield the code that the service answered with if the request has to change, then the error's and its classes'."""
    if isinstance(error, RequestRefused | RequestStillRunning) and not isinstance(error, NotAuthenticated):
        yield from filter(None, [vars(error).get("error_code")])
    yield error.code
    yield from (code for kind in type(error).__mro__ if isinstance(code := vars(kind).get("code"), str))


def _of_command(advice: Iterable[str], options: Set[str]) -> str:
    """Return the sentences of the first advice that a command's user can follow; other commands are in backquotes."""
    for step in advice:
        sentences = re.split(r"(?<=\.) ", step)
        kept = [one for one in sentences if options >= set(_OPTION.findall(_QUOTED.sub("", one)))]
        if kept:
            return " ".join(kept)
    return _AGAIN
