"""Everything that the author of a behavior needs (docs/workers.md, "Ten minutes to a behavior of your own"):
`@behavior("acme.report")` declares a plain function as a behavior."""

import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from delegation.errors import RunCancelled, RunStopped
from delegation.tasks.calls import bad_behavior, illegal_result, is_coroutine_function, outcome_of, require_work
from delegation.tasks.errors import LeaseLost, RunPostponed
from delegation.tasks.life.declared import PLAIN_RETRY, Recurrence, Retry
from delegation.tasks.life.model import Task
from delegation.tasks.life.transitions import RETIRED
from delegation.tasks.submit import AsyncHandle, Call, Handle, Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.author_context import AsyncContext, ChildFailed, Context
from delegation.tasks.work.behaviors import Behavior, OnLost
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


_STRICT: Final = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, arbitrary_types_allowed=False)
_KINDS: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and returns. `context` is the name of its Context parameter, if any. The fields of
    `parameters` are numbered, because a parameter may have a name that pydantic's models use, such as `copy`; their
    aliases are the parameters' names, which are stored."""

    parameters: type[BaseModel]
    result: type[BaseModel] | None
    names: Mapping[str, str]
    context: str | None
    shape: inspect.Signature

    def bind(self, *args: Any, **kwargs: Any) -> BaseModel:
        """Return the parameters of a call. Raises TypeError as the call would, ValidationError for a wrong value."""
        return self.parameters.model_validate(dict(self.shape.bind(*args, **kwargs).arguments))

    def arguments(self, parameters: BaseModel) -> dict[str, Any]:
        return {name: getattr(parameters, field) for field, name in self.names.items()}

    def returned(self, value: Any) -> BaseModel | None:
        """Return the result to record. Raises ValidationError for a value of another type."""
        if self.result is None:
            return None
        if issubclass(self.result, RootModel):
            return self.result.model_validate(value)
        return value if isinstance(value, self.result) else None

    def value(self, result: BaseModel | None) -> Any:
        """Return what the function returned, from a recorded result."""
        return result.root if isinstance(result, RootModel) else result


def signature_of(task_type: str, function: Callable[..., Any]) -> Signature:
    """Read a function's signature. DelegationError (BAD_BEHAVIOR) names a parameter that is untyped or not storable."""
    require_work(task_type, function)
    context_type, other = (AsyncContext, Context) if is_coroutine_function(function) else (Context, AsyncContext)
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        reason = f"an annotation uses {error.name}, which the function's module does not define. Import it at run time"
        raise bad_behavior(task_type, reason) from error
    given: list[inspect.Parameter] = []
    context: str | None = None
    for parameter in signature.parameters.values():
        if parameter.annotation is inspect.Parameter.empty:
            raise bad_behavior(task_type, f"the parameter {parameter.name} has no type annotation. Add one")
        if parameter.kind not in _KINDS:
            raise bad_behavior(
                task_type, f"the parameter {parameter.name} cannot be passed by name. Declare it without * and /"
            )
        if parameter.annotation is other:
            kind = "a coroutine" if context_type is AsyncContext else "a plain function"
            wanted = f"must have the type {context_type.__name__}, because the function is {kind}"
            raise bad_behavior(task_type, f"the parameter {parameter.name} {wanted}")
        if parameter.annotation is context_type:
            context = parameter.name
        else:
            given.append(parameter)
    if signature.return_annotation is inspect.Signature.empty:
        raise bad_behavior(task_type, "the function has no return annotation. Annotate -> None if it returns nothing")
    shape = signature.replace(parameters=given)
    names = {f"argument_{index}": parameter.name for index, parameter in enumerate(given)}
    try:
        return Signature(
            _model(task_type, function, given), _result(signature.return_annotation), names, context, shape
        )
    except PydanticUserError as error:
        reason = error.message.partition(". ")[0]
        raise bad_behavior(task_type, f"{_unstorable(given)} has a type that cannot be stored: {reason}") from error


def _unstorable(given: list[inspect.Parameter]) -> str:
    for parameter in given:
        try:
            TypeAdapter(parameter.annotation)
        except PydanticUserError:
            return f"the parameter {parameter.name}"
    return "the result"


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
"""The task types that properties can name: with the author's name, `acme.report`, or in capital letters, `REPORT`."""


@dataclass(frozen=True, kw_only=True)
class FunctionTask(Behavior[BaseModel, BaseModel], Generic[S, V]):
    """A Behavior made from a plain function. Calling it calls the function here and now."""

    context: type[AttemptContext] = Context
    function: Callable[..., Any] = field(repr=False)
    signature: Signature = field(repr=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, with a Context if it takes one; nothing is stored. Await the result of a coroutine."""
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

    Its parameters and result have types that pydantic can store. A parameter of type Context (AsyncContext in a
    coroutine) gets the context. A coroutine runs in an event loop of its attempt. `key`, called with the same
    arguments, identifies a task: a second submission attaches to the first. An attempt may work for `timeout`, checked
    at its checkpoints; a task not done `deadline` after its submission fails. `version` is that of the parameters (see
    Behavior). `every` and `cron` schedule submissions that name no schedule. Raises DelegationError (BAD_BEHAVIOR,
    BAD_SCHEDULE).
    """

    def declare(function: Callable[..., Any]) -> FunctionTask[Any, Any]:
        if not _KIND.fullmatch(task_type):
            raise bad_behavior(
                task_type,
                "a task type must have a name such as acme.report (with its author) or REPORT (in capital letters)",
            )
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
        raise illegal_result(
            f"{task_type} must return the declared type {error.title}, and returned another"
        ) from error


def _work(
    task_type: str, function: Callable[..., Any], signature: Signature
) -> Callable[[BaseModel, Any], BaseModel | None]:
    """Return the function as a Behavior runs it: with stored parameters, and with the cursor written at its end."""

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
            with suppress(LeaseLost):
                context.save()
            raise

    return work


class AnyParameters(BaseModel):
    """The parameters of a retired task type; anything is accepted."""

    model_config = ConfigDict(extra="allow")


def retired(task_type: str, reason: str) -> Behavior[Any, Any]:
    """Return a behavior that fails the remaining tasks of a retired type with this reason when they are due."""

    def work(_parameters: AnyParameters, _run: AttemptContext) -> None:
        raise DelegationError(f"the task type {task_type} was retired: {reason}", code=RETIRED)

    return Behavior(task_type, AnyParameters, work)
