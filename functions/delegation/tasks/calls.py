"""Calls of a behavior's work: a plain function runs where it is called, a coroutine in an event loop of its attempt."""

import inspect
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from delegation.errors import RunStopped
from delegation.tasks.errors import (
    LeaseLost,
    OutcomeUnknown,
    StoreUnavailable,
)
from polaris_common.errors import DelegationError, printable

if TYPE_CHECKING:
    from delegation.tasks.work.attempt_context import AttemptContext

ILLEGAL_RESULT: Final = "ILLEGAL_RESULT"
POLL_EVERY: Final = timedelta(seconds=1)
"""How often a waiting coroutine's attempt is checked."""


def bad_behavior(name: str, reason: str) -> DelegationError:
    return DelegationError(f"behavior {name}: {reason}", code="BAD_BEHAVIOR")


def illegal_parameters(task_type: str, reason: str) -> DelegationError:
    """Return the error for parameters that cannot be stored."""
    return DelegationError(f"the parameters of {task_type} are {reason}", code="ILLEGAL_PARAMETERS")


def illegal_result(message: str) -> DelegationError:
    return DelegationError(message, code=ILLEGAL_RESULT)


def stored_json(model: BaseModel, refused: Callable[[str], DelegationError]) -> str:
    """Return parameters or a result as JSON. If they cannot be stored, raises what `refused` returns for the reason."""
    try:
        # The JSON of a model has null for infinity and NaN.
        values = to_jsonable_python(model.model_dump(), inf_nan_mode="constants", fallback=lambda _other: None)
        json.dumps(values, allow_nan=False)
        return model.model_dump_json()
    except ValueError as error:
        raise refused(f"not a JSON value: {printable(str(error))}") from error


class WorkCancelledItself(RuntimeError):
    """The work ended with asyncio's CancelledError although nothing had cancelled its task."""


def require_work(task_type: str, work: Callable[..., Any]) -> None:
    """Raise DelegationError (BAD_BEHAVIOR) for a generator function: a call runs none of its code."""
    if any(inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form) for form in _forms(work)):
        raise bad_behavior(
            task_type, "the function is a generator, and its code would never run. Return a value instead of yielding"
        )


def is_coroutine_function(work: Callable[..., Any]) -> bool:
    return any(inspect.iscoroutinefunction(form) for form in _forms(work))


def outcome_of(task_type: str, call: Callable[[], Any], run: "AttemptContext") -> Any:
    """Return what `call` returned, or the result of the coroutine that it returned. A waiting coroutine is cancelled
    when its attempt must not continue. Raises the work's errors, DelegationError (ILLEGAL_RESULT), WorkCancelledItself,
    and RuntimeError for sys.exit: asyncio's CancelledError or SystemExit would end the worker's process."""
    stops: list[BaseException] = []
    try:
        returned = call()
        if inspect.isawaitable(returned):
            return _awaited(returned, run, stops)
    except BaseException as error:
        ended_by = _ended_by(task_type, error, stops)
        if ended_by is error:
            raise
        raise ended_by from error
    if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
        raise illegal_result(f"{task_type} returned a generator, whose code did not run. Return a value")
    return returned


def _ended_by(task_type: str, error: BaseException, stops: list[BaseException]) -> BaseException:
    """Return what ends the attempt whose work raised `error`: the stop, if any, even within an exception group."""
    stop = _stop_within(error) or next(iter(stops), None)
    if stop is not None:
        return stop
    if isinstance(error, Exception):
        return error
    if _contains(error, SystemExit):
        return RuntimeError(f"{task_type} called sys.exit. Raise an error instead")
    from asyncio import CancelledError  # noqa: PLC0415 - see _awaited

    if _contains(error, CancelledError):
        return WorkCancelledItself(f"{task_type} raised asyncio's CancelledError, although nobody cancelled the task")
    return error


def _forms(work: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return the function and, for a callable object, its `__call__`."""
    while isinstance(work, partial):
        work = work.func
    return (work,) if inspect.isroutine(work) else (work, type(work).__call__)


def _awaited(work: Awaitable[Any], run: "AttemptContext", stops: list[BaseException]) -> Any:
    """Run a coroutine to its end in an event loop; `stops` gets the reason if it was cancelled."""
    import asyncio  # noqa: PLC0415 - most work is no coroutine, and functions start without it

    async def watched() -> Any:
        task = asyncio.ensure_future(work)
        while True:
            done, _ = await asyncio.wait({task}, timeout=POLL_EVERY.total_seconds())
            if done:
                return task.result()
            stop = await asyncio.to_thread(_stop_of, run)
            if stop is not None:
                stops[:] = [stop]
            if stops:
                task.cancel()  # once more if the work swallowed the last one

    with asyncio.Runner() as runner:
        return runner.run(watched())


def _stop_of(run: "AttemptContext") -> BaseException | None:
    """Return why the attempt must not continue. None if it may, or if the store cannot be read now."""
    try:
        run.checkpoint(moved=False)
    except (RunStopped, LeaseLost) as stop:
        return stop
    except (StoreUnavailable, OutcomeUnknown):
        return None  # the LeaseKeeper notices the end of the lease without the store
    except DelegationError as error:
        return error
    return None


def _stop_within(error: BaseException) -> BaseException | None:
    if isinstance(error, RunStopped | LeaseLost):
        return error
    if isinstance(error, BaseExceptionGroup):
        return next((stop for exception in error.exceptions if (stop := _stop_within(exception))), None)
    return None


def _contains(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_contains(exception, kind) for exception in error.exceptions)
    return isinstance(error, kind)
