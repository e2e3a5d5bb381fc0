"""The parameters and the result of a plain function, as pydantic models."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.errors import PydanticUserError

from delegation.tasks.authoring.context import AsyncContext, Context
from delegation.tasks.calls import bad_behavior, is_coroutine_function, require_work

__all__ = ["Signature", "signature_of"]
_STRICT: Final = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, arbitrary_types_allowed=False)
_KINDS: Final = frozenset({inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY})


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and returns. `context` is the name of the parameter that takes the Context, if any.

    Fields of `parameters` are numbered, because a parameter may have a name that pydantic's models use, `copy` for
    example; their aliases are the parameters' names, which are stored.
    """

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
    """Read a function's signature.

    DelegationError (BAD_BEHAVIOR) names the parameter that has no type or cannot be stored.
    """
    require_work(task_type, function)
    context_type, other = (AsyncContext, Context) if is_coroutine_function(function) else (Context, AsyncContext)
    try:
        found = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise bad_behavior(task_type, f"an annotation names {error.name}, which its module does not define") from error
    given: list[inspect.Parameter] = []
    context: str | None = None
    for parameter in found.parameters.values():
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
    if found.return_annotation is inspect.Signature.empty:
        raise bad_behavior(task_type, "the function does not say what it returns; use -> None for nothing")
    shape = found.replace(parameters=given)
    names = {f"argument_{index}": parameter.name for index, parameter in enumerate(given)}
    try:
        return Signature(_model(task_type, function, given), _result(found.return_annotation), names, context, shape)
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
