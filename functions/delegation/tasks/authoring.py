"""Everything that the author of a behavior needs (docs/workers.md, "Ten minutes to a behavior of your own"): what its
work may do while it runs, and `@behavior("acme.report")`, a plain function declared as a behavior."""

import inspect
import json
import re
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Concatenate, Final, Generic, Literal, Never, ParamSpec, Protocol, TypeVar, Unpack, overload

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, create_model
from pydantic.errors import PydanticUserError

from delegation.errors import RunCancelled, RunStopped
from delegation.tasks.calls import bad_behavior, illegal_result, is_coroutine_function, outcome_of, require_work
from delegation.tasks.errors import AwaitedTaskFailed, ChildrenPending, LeaseLost, RunPostponed
from delegation.tasks.life.declared import CURSOR, PLAIN_RETRY, Recurrence, Retry
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import RETIRED
from delegation.tasks.submit import AsyncHandle, Call, Handle, Options, Parent, Tasks
from delegation.tasks.work.attempt_context import REPORT_EVERY, AttemptContext
from delegation.tasks.work.behaviors import Behavior, OnLost
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError

__all__ = [
    "AsyncContext",
    "AsyncHandle",
    "ChildFailed",
    "Context",
    "FunctionTask",
    "Handle",
    "OnLost",
    "Retry",
    "RunPostponed",
    "Tasks",
    "behavior",
    "retired",
]
V = TypeVar("V")
T = TypeVar("T")
_SAME: Final = object()
_LONGEST_CURSOR: Final = 4_096


class ChildFailed(DelegationError):
    """A child whose result the work needs ended in FAILURE; so does the parent, unless the work catches this."""

    code = "CHILD_FAILED"


class Context(AttemptContext):
    """One attempt as its author's function sees it: with a cursor and children. Methods end the attempt by RunStopped,
    which is no Exception. A run is everything from a submission to its outcome: retries, hand-overs, the attempts after
    a loss."""

    def __init__(self, tasks: TaskService, task: Task, **settings: Any) -> None:
        super().__init__(tasks, task, **settings)
        self._saved: str | None = task.details.get(CURSOR)
        self._moved: str | None = self._saved
        self._saved_at = self.seconds()
        self._known: Mapping[str, Task] | None = None

    @property
    def cursor(self) -> Any:
        """The last value given to `checkpoint` in this run, also by a former attempt; None at its beginning. After a
        crash it may be two seconds old, so the work just after it may be done twice."""
        return None if self._moved is None else json.loads(self._moved)

    def checkpoint(self, *, cursor: Any = _SAME) -> None:
        """Check that work may continue; call it before each piece of work. `cursor` is any JSON value from which
        another attempt can continue: all work before it is done. Raises LeaseLost, RunCancelled, RunHandedOver,
        RunTimedOut, DelegationError (BAD_CURSOR)."""
        if cursor is not _SAME:
            self._moved = _cursor_text(cursor)
        super().checkpoint()
        if self.seconds() - self._saved_at >= REPORT_EVERY.total_seconds():
            self.save()

    def save(self) -> None:
        """Write the cursor now, if it was moved; the end of an attempt does that too. Raises LeaseLost."""
        if self._moved == self._saved:
            return
        moved = self._moved
        self.write(lambda: self.tasks.leases.note(self.task_id, self.attempt, details={CURSOR: moved}))
        self._saved, self._saved_at = moved, self.seconds()

    def submit(self, call: Call[V], **options: Unpack[Options]) -> Handle[V]:
        """Submit a child: its parent ends after it, and fails with it unless `gather` reads its outcome. A child
        without a key or computed id is the n-th child of this run: repeated work attaches to it, so it must submit the
        same children in the same order. Otherwise raises DelegationError (CHILD_CHANGED)."""
        return self.submit_all([call], **options)[0]

    def submit_all(self, calls: Sequence[Call[V]], **options: Unpack[Options]) -> list[Handle[V]]:
        """Submit many children as `submit` does each, with two writes for every 40; `options` are those of all."""
        if self._known is None:
            # Adopted by former attempts of this run, and read once: there may be many.
            self._known = (
                self.tasks.reads.find_many(self.tasks.reads.children(self.task_id)) if self.task.family.children else {}
            )
        wanted: Options = {**options, "parent": Parent(self.task_id, self.attempt)}
        handles: list[Handle[V]] = []
        submitted = Tasks(self.tasks).submit_children(calls, wanted, self._known)
        for call, (first, child) in zip(calls, submitted, strict=True):
            by_place = call.behavior.identify is None and options.get("key") is None
            if by_place and child.task_payload != first.task_payload:
                raise DelegationError(
                    f"task {self.task_id} submitted its child {child.task_id} with other parameters before; "
                    "work with children must submit the same ones in the same order each time it runs",
                    code="CHILD_CHANGED",
                )
            handles.append(Handle(self.tasks, call.behavior, child.task_id))
        return handles

    @overload
    def gather(self, children: Sequence[Handle[V]]) -> list[V]: ...
    @overload
    def gather(self, children: Sequence[Handle[V]], *, return_errors: Literal[True]) -> list[V | AwaitedTaskFailed]: ...

    def gather(self, children: Sequence[Handle[V]], *, return_errors: bool = False) -> list[Any]:
        """Return the children's results, in their order, when all have ended. Until then this ends the attempt, which
        counts against no limit, and the work runs again from its beginning with the same children. Raises ChildFailed,
        unless `return_errors` puts the errors into the list."""
        heads = self.tasks.reads.find_many([child.task_id for child in children])
        outcomes = [child.peek(head=heads.get(child.task_id)) for child in children]
        missing = sum(outcome is None for outcome in outcomes)
        if missing:
            raise ChildrenPending(self.task_id, missing)
        self.settled.update(child.task_id for child in children)
        failed = [outcome for outcome in outcomes if isinstance(outcome, AwaitedTaskFailed)]
        self.forgiven.update(failure.task_id for failure in failed)
        if failed and not return_errors:
            raise ChildFailed(f"{len(failed)} of {len(outcomes)} children failed; the first: {failed[0]}")
        return [outcome if isinstance(outcome, AwaitedTaskFailed) else outcome.value for outcome in outcomes if outcome]

    def keep_cursor(self) -> None:
        """Write the cursor at the end of an attempt; an attempt that lost its lease leaves it as it is."""
        with suppress(LeaseLost):
            self.save()


class AsyncContext:
    """A Context for coroutines: its methods that may call the store are awaited, one at a time."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = threading.Lock()

    @property
    def task(self) -> Task:
        return self._context.task

    @property
    def attempt(self) -> int:
        return self._context.attempt

    @property
    def cursor(self) -> Any:
        return self._context.cursor

    async def checkpoint(self, *, cursor: Any = _SAME) -> None:
        """Check that work may continue, as Context does. A coroutine that waits is cancelled without it."""
        await self._called(lambda: self._context.checkpoint(cursor=cursor))

    async def save(self) -> None:
        await self._called(self._context.save)

    async def report(
        self,
        *,
        done: int | None = None,
        total: int | None = None,
        unit: str | None = None,
        message: str | None = None,
        eta: datetime | None = None,
        details: Mapping[str, Any] | None = None,
        **unknown: Never,
    ) -> None:
        await self._called(
            lambda: self._context.report(
                done=done, total=total, unit=unit, message=message, eta=eta, details=details, **unknown
            )
        )

    async def submit(self, call: Call[V], **options: Unpack[Options]) -> Handle[V]:
        return await self._called(lambda: self._context.submit(call, **options))

    async def submit_all(self, calls: Sequence[Call[V]], **options: Unpack[Options]) -> list[Handle[V]]:
        return await self._called(lambda: self._context.submit_all(calls, **options))

    @overload
    async def gather(self, children: Sequence[Handle[V]]) -> list[V]: ...
    @overload
    async def gather(
        self, children: Sequence[Handle[V]], *, return_errors: Literal[True]
    ) -> list[V | AwaitedTaskFailed]: ...

    async def gather(self, children: Sequence[Handle[V]], *, return_errors: bool = False) -> list[Any]:
        if return_errors:
            return await self._called(lambda: self._context.gather(children, return_errors=True))
        return await self._called(lambda: self._context.gather(children))

    async def _called(self, method: Callable[[], T]) -> T:
        import asyncio  # noqa: PLC0415 - only coroutines need it

        def alone() -> T:
            with self._lock:
                return method()

        return await asyncio.to_thread(alone)


def _cursor_text(cursor: Any) -> str | None:
    if cursor is None:
        return None
    try:
        text = json.dumps(cursor, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DelegationError(f"the cursor is not a JSON value: {error}", code="BAD_CURSOR") from error
    if len(text) > _LONGEST_CURSOR:
        raise DelegationError(
            f"the cursor has {len(text)} characters, more than {_LONGEST_CURSOR}: keep a position in it",
            code="BAD_CURSOR",
        )
    return text


_STRICT: Final = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, arbitrary_types_allowed=False)
_KINDS: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and returns; `context` is the name of its Context parameter, if any. Fields of `parameters`
    are numbered, because a parameter may have a name that pydantic's models use, such as `copy`; their aliases are the
    parameters' names, which are stored."""

    parameters: type[BaseModel]
    result: type[BaseModel] | None
    names: Mapping[str, str]
    context: str | None
    shape: inspect.Signature

    def bind(self, *args: Any, **kwargs: Any) -> BaseModel:
        """Return the parameters of a call; TypeError as the call would raise it, ValidationError for a wrong value."""
        return self.parameters.model_validate(dict(self.shape.bind(*args, **kwargs).arguments))

    def arguments(self, parameters: BaseModel) -> dict[str, Any]:
        return {name: getattr(parameters, field) for field, name in self.names.items()}

    def returned(self, value: Any) -> BaseModel | None:
        """Return the result to record; raises ValidationError if the function returned something else."""
        if self.result is None:
            return None
        if issubclass(self.result, RootModel):
            return self.result.model_validate(value)
        return value if isinstance(value, self.result) else None

    def value(self, result: BaseModel | None) -> Any:
        """Return what the function had returned for a recorded result."""
        return result.root if isinstance(result, RootModel) else result


def signature_of(task_type: str, function: Callable[..., Any]) -> Signature:
    """Read a function's signature; DelegationError (BAD_BEHAVIOR) names a parameter that is untyped or cannot be
    stored."""
    require_work(task_type, function)
    context_type, other = (AsyncContext, Context) if is_coroutine_function(function) else (Context, AsyncContext)
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise bad_behavior(task_type, f"an annotation names {error.name}, which its module does not define") from error
    given: list[inspect.Parameter] = []
    context: str | None = None
    for parameter in signature.parameters.values():
        if parameter.annotation is inspect.Parameter.empty:
            raise bad_behavior(task_type, f"the parameter {parameter.name} has no type")
        if parameter.kind not in _KINDS:
            raise bad_behavior(task_type, f"the parameter {parameter.name} cannot be given by name")
        if parameter.annotation is other:
            article = "a coroutine" if context_type is AsyncContext else "a plain function"
            raise bad_behavior(task_type, f"the parameter {parameter.name} of {article} takes {context_type.__name__}")
        if parameter.annotation is context_type:
            context = parameter.name
        else:
            given.append(parameter)
    if signature.return_annotation is inspect.Signature.empty:
        raise bad_behavior(task_type, "the function does not say what it returns; use -> None for nothing")
    shape = signature.replace(parameters=given)
    names = {f"argument_{index}": parameter.name for index, parameter in enumerate(given)}
    try:
        return Signature(
            _model(task_type, function, given), _result(signature.return_annotation), names, context, shape
        )
    except PydanticUserError as error:
        raise bad_behavior(task_type, f"a type cannot be stored: {error.message}") from error


def _model(task_type: str, function: Callable[..., Any], given: list[inspect.Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(given):
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[f"argument_{index}"] = (parameter.annotation, Field(default, alias=parameter.name))
    return create_model(f"Parameters of {task_type}", __config__=_STRICT, __module__=function.__module__, **fields)


def _result(annotation: Any) -> type[BaseModel] | None:
    if annotation is None or annotation is type(None):
        return None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    result: type[BaseModel] = RootModel[annotation]
    return result


S = ParamSpec("S")
_KIND: Final = re.compile(r"[A-Z][A-Z0-9_]*|[A-Za-z]\w*(?:\.\w+)+", re.ASCII)
"""The names that properties can name: with that of the author, `acme.report`, or in capital letters, `REPORT`."""


@dataclass(frozen=True, kw_only=True)
class FunctionTask(Behavior[BaseModel, BaseModel], Generic[S, V]):
    """A Behavior over a plain function, which it also is: calling it calls the function, here and now."""

    context: type[AttemptContext] = Context
    function: Callable[..., Any] = field(repr=False)
    signature: Signature = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with a Context if it takes one; nothing is stored. A coroutine is to be awaited."""
        return self.function(*args, **kwargs)

    def of(self, *args: S.args, **kwargs: S.kwargs) -> Call[V]:
        """Return a task to submit with these arguments, without the context. Raises TypeError as a call would, and
        pydantic's ValidationError for a value of another type."""
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

    Its parameters and result have types that pydantic can store; a parameter of type Context (in a coroutine
    AsyncContext) takes the context. A coroutine runs in an event loop of its attempt. `key`, called with the same
    arguments, identifies a task: a second submission attaches to the first. An attempt may work for `timeout`, checked
    at its checkpoints; a task not done `deadline` after its submission fails. `version` is that of the parameters (see
    Behavior). `every` and `cron` schedule submissions that name none. Raises DelegationError (BAD_BEHAVIOR,
    BAD_SCHEDULE).
    """

    def declare(function: Callable[..., Any]) -> FunctionTask[Any, Any]:
        if not _KIND.fullmatch(task_type):
            raise bad_behavior(task_type, "name a type after its author, acme.report, or in capital letters, REPORT")
        if concurrency is not None and concurrency < 1:
            raise bad_behavior(task_type, "concurrency must be at least 1")
        Recurrence(every, cron)
        signature = signature_of(task_type, function)
        return FunctionTask(
            task_type=task_type,
            parameters=signature.parameters,
            work=_work(task_type, function, signature),
            result=signature.result,
            identify=None if key is None else lambda parameters: key(**signature.arguments(parameters)),
            every=every,
            cron=cron,
            on_lost=on_lost,
            retry=retry,
            timeout=timeout,
            deadline=deadline,
            version=version,
            concurrency=concurrency,
            function=function,
            signature=signature,
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

    def work(parameters: BaseModel, context: Context) -> BaseModel | None:
        given = signature.arguments(parameters)
        if signature.context is not None:
            given[signature.context] = AsyncContext(context) if awaits else context
        try:
            return _checked(task_type, signature, outcome_of(task_type, lambda: function(**given), context))
        except (LeaseLost, RunCancelled):
            raise
        except (Exception, RunStopped):
            context.keep_cursor()
            raise

    return work


class AnyParameters(BaseModel):
    """The parameters of a retired task type, whatever they are."""

    model_config = ConfigDict(extra="allow")


def retired(task_type: str, reason: str) -> Behavior[Any, Any]:
    """Return the behavior that ends what is left of a task type when it is due, as FAILURE with this reason."""

    def work(_parameters: AnyParameters, _run: AttemptContext) -> None:
        raise DelegationError(f"the task type {task_type} was retired: {reason}", code=RETIRED)

    return Behavior(task_type, AnyParameters, work)
