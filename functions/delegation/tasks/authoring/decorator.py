"""`@behavior("acme.report")`: a plain function, declared as a behavior."""

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from pydantic import BaseModel, ValidationError

from delegation.errors import RunCancelled, RunStopped
from delegation.tasks.authoring.context import AsyncContext, Context
from delegation.tasks.authoring.signature import Signature, signature_of
from delegation.tasks.calls import bad_behavior, illegal_result, is_coroutine_function, outcome_of
from delegation.tasks.errors import (
    LeaseLost,
)
from delegation.tasks.life.declared.recurrence import Recurrence
from delegation.tasks.life.declared.retry import PLAIN_RETRY, Retry
from delegation.tasks.life.model import Task
from delegation.tasks.submission.requests import Call
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior, OnLost

S = ParamSpec("S")
V = TypeVar("V")
_KIND: Final = re.compile(r"[A-Z][A-Z0-9_]*|[A-Za-z]\w*(?:\.\w+)+", re.ASCII)
"""The names that properties can name: with that of the author, `acme.report`, or in capital letters, `REPORT`."""


@dataclass(frozen=True, kw_only=True)
class FunctionTask(Behavior[BaseModel, BaseModel], Generic[S, V]):
    """A Behavior over a plain function, which it also is: calling it calls the function, here and now."""

    function: Callable[..., Any] = field(repr=False)
    signature: Signature = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with a Context if it takes one; nothing is stored. A coroutine is to be awaited."""
        return self.function(*args, **kwargs)

    def of(self, *args: S.args, **kwargs: S.kwargs) -> Call[V]:
        """Return a task to submit with these arguments, without the context.

        Raises TypeError as a call would, and pydantic's ValidationError for a value of another type.
        """
        return Call(self, self.signature.bind(*args, **kwargs))

    def read_result(self, task: Task) -> Any:
        return self.signature.value(super().read_result(task))


class _Declares(Protocol):
    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncContext, S], Coroutine[Any, Any, V]], /
    ) -> FunctionTask[S, V]: ...
    @overload
    def __call__(self, function: Callable[S, Coroutine[Any, Any, V]], /) -> FunctionTask[S, V]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, S], V], /) -> FunctionTask[S, V]: ...
    @overload
    def __call__(self, function: Callable[S, V], /) -> FunctionTask[S, V]: ...


def behavior(
    task_type: str,
    *,
    retry: Retry = PLAIN_RETRY,
    timeout: timedelta | None = None,
    deadline: timedelta | None = None,
    version: int = 1,
    on_lost: OnLost = OnLost.RETRY,
    concurrency: int | None = None,
    key: Callable[..., str] | None = None,
    every: timedelta | None = None,
    cron: str | None = None,
) -> _Declares:
    """Declare a function as the work of the task type `task_type`.

    The function's parameters and result have types that pydantic can store; a parameter of type Context, of a coroutine
    AsyncContext, takes the context. A coroutine runs in an event loop of its attempt. `key`, called with the same
    arguments, identifies a task: a second submission attaches to the first one. An attempt may work for `timeout`,
    checked at its checkpoints; a task that is not done `deadline` after its submission fails. `version` is that of the
    parameters (see Behavior). `every` and `cron` are the schedule of submissions that name none. Raises DelegationError
    (BAD_BEHAVIOR, BAD_SCHEDULE).
    """

    def declare(function: Callable[..., Any]) -> FunctionTask[Any, Any]:
        if not _KIND.fullmatch(task_type):
            raise bad_behavior(task_type, "name a type after its author, acme.report, or in capital letters, REPORT")
        if concurrency is not None and concurrency < 1:
            raise bad_behavior(task_type, "concurrency must be at least 1")
        Recurrence(every, cron)
        found = signature_of(task_type, function)
        return FunctionTask(
            task_type=task_type,
            parameters=found.parameters,
            work=_work(task_type, function, found),
            result=found.result,
            identify=None if key is None else lambda parameters: key(**found.arguments(parameters)),
            every=every,
            cron=cron,
            on_lost=on_lost,
            retry=retry,
            timeout=timeout,
            deadline=deadline,
            version=version,
            concurrency=concurrency,
            function=function,
            signature=found,
        )

    return declare


def _checked(task_type: str, signature: Signature, value: Any) -> BaseModel | None:
    try:
        return signature.returned(value)
    except ValidationError as error:
        raise illegal_result(f"{task_type} returned a value of another type than declared: {error.title}") from error


def _work(
    task_type: str, function: Callable[..., Any], signature: Signature
) -> Callable[[BaseModel, Any], BaseModel | None]:
    """Return the function as a Behavior runs it: with stored parameters, and a cursor that is written at its end."""

    awaits = is_coroutine_function(function)

    def work(parameters: BaseModel, run: AttemptContext) -> BaseModel | None:
        context = Context(run)
        given = signature.arguments(parameters)
        if signature.context is not None:
            given[signature.context] = AsyncContext(context) if awaits else context
        try:
            return _checked(task_type, signature, outcome_of(task_type, lambda: function(**given), run))
        except (LeaseLost, RunCancelled):
            raise
        except (Exception, RunStopped):
            context.keep_cursor()
            raise

    return work
