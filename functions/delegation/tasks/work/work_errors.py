"""What is recorded of an error that the work raised: its type, its message and where it was raised, without secrets."""

import traceback
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from delegation.errors import DelegationError
from delegation.tasks.errors import RunStopped
from delegation.tasks.life.outcomes import AttemptError, ErrorClass
from delegation.tasks.life.redaction import redacted

UNEXPECTED_ERROR: Final = "UNEXPECTED_ERROR"
_FRAMES: Final = 12
_CAUSES: Final = 4
_LONGEST: Final = 4_000
"""Characters of one attempt's traceback, so that the history of a task has room for several."""


def failed_work(error: Exception | RunStopped, kind: ErrorClass) -> AttemptError:
    """Return the error of an attempt whose work raised `error`; the code of a DelegationError is kept."""
    known = isinstance(error, DelegationError | RunStopped)
    code = error.code if isinstance(error, DelegationError | RunStopped) else UNEXPECTED_ERROR
    summary = redacted(str(error) if known else described(error))
    return AttemptError(code, summary, kind, f"{summary}\n{where(error)}")


def described(error: BaseException) -> str:
    """Return the type of an error and its message, as the last line of a Python traceback has them."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def where(error: BaseException) -> str:
    """Return the calls that led to an error and to its causes, innermost last: file, line, function; no values."""
    return redacted("\n".join(_lines(error)))[:_LONGEST]


def _lines(error: BaseException) -> Iterator[str]:
    current: BaseException | None = error
    for depth in range(_CAUSES):
        if current is None:
            return
        if depth:
            yield f"caused by {described(current)}"
        for frame in traceback.extract_tb(current.__traceback__)[-_FRAMES:]:
            yield f"  at {'/'.join(PurePath(frame.filename).parts[-2:])}:{frame.lineno} in {frame.name}"
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
