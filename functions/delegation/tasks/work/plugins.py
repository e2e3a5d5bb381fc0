"""Behaviors that a deployment adds.

`DELEGATION_BEHAVIORS` names modules and functions. `acme.tasks` is a module, whose Behaviors are added.
`acme.tasks:behaviors` is a function of the TaskService that returns Behaviors or TaskBehaviors, called once per
process. Every process that runs tasks or decides on them must have the same names; otherwise it takes their tasks for a
newer deployment's.
"""

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from delegation.tasks.life.lanes import part
from delegation.tasks.life.policy import Policies
from delegation.tasks.work.behaviors import Behavior, FunctionBehavior, OnLost, TaskBehavior
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError

Added = Callable[[TaskService], Iterable[Behavior[Any, Any] | TaskBehavior]]


class BadPlugin(DelegationError):
    """A function that DELEGATION_BEHAVIORS names cannot be used; the process does not start."""

    code = "BAD_PLUGIN"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"DELEGATION_BEHAVIORS: {name}: {reason}")


@dataclass(frozen=True, slots=True)
class Plugins:
    """The behaviors that were declared, and the task types that they run."""

    declared: tuple[Behavior[Any, Any] | TaskBehavior, ...] = ()
    task_types: frozenset[str] = frozenset()

    @property
    def fail_when_lost(self) -> frozenset[str]:
        """The task types whose lost attempts are failures."""
        functions = (behavior for behavior in self.declared if isinstance(behavior, Behavior))
        return frozenset(function.task_type for function in functions if function.on_lost is OnLost.FAIL)

    def policies(self, policies: Policies) -> Policies:
        """Return policies with what the behaviors declare; properties of a task type override it."""
        functions = [behavior for behavior in self.declared if isinstance(behavior, Behavior)]
        declared = {function.task_type: function.retry.fields() for function in functions if function.retry.fields()}
        lost = policies.fail_when_lost | self.fail_when_lost
        caps = {
            part(function.task_type): function.concurrency for function in functions if function.concurrency is not None
        }
        limits = policies.limits and replace(policies.limits, task_types={**caps, **policies.limits.task_types})
        return replace(
            policies.declaring(declared), fail_when_lost=lost, limits=limits, declared_deadlines=self.deadlines
        )

    @property
    def versions(self) -> dict[str, int]:
        """The newest payload versions by task type."""
        newest = (
            (behavior, getattr(behavior, "version", getattr(behavior, "payload_version", 1)))
            for behavior in self.declared
        )
        return {task_type: version for named, version in newest for task_type in _task_types(named)}

    @property
    def deadlines(self) -> dict[str, timedelta]:
        functions = (behavior for behavior in self.declared if isinstance(behavior, Behavior))
        return {function.task_type: function.deadline for function in functions if function.deadline is not None}

    def behaviors(self, tasks: TaskService) -> tuple[TaskBehavior, ...]:
        return tuple(
            FunctionBehavior(tasks, behavior) if isinstance(behavior, Behavior) else behavior
            for behavior in self.declared
        )


def load(names: Sequence[str], tasks: TaskService, *, existing: frozenset[str]) -> Plugins:
    """Import and call the named functions. BadPlugin names one that is wrong or repeats a task type of `existing`."""
    loaded: list[Behavior[Any, Any] | TaskBehavior] = []
    added: frozenset[str] = frozenset()
    for name in names:
        for declared in _declared(name, tasks):
            if any(declared is behavior for behavior in loaded):
                continue  # a module may import a behavior of another one
            task_types = _task_types(declared)
            if again := sorted(task_types & (existing | added)):
                raise BadPlugin(name, f"the task type {again[0]} already has a behavior. Use another name")
            added |= task_types
            loaded.append(declared)
    return Plugins(tuple(loaded), added)


def _task_types(declared: Behavior[Any, Any] | TaskBehavior) -> frozenset[str]:
    return frozenset({declared.task_type}) if isinstance(declared, Behavior) else declared.task_types


def _declared(name: str, tasks: TaskService) -> Iterable[Behavior[Any, Any] | TaskBehavior]:
    """Return the behaviors of a module, or those that its function returns."""
    module_name, _, attribute = name.partition(":")
    if not module_name or name.endswith(":"):
        raise BadPlugin(name, "is neither a module nor module:function")
    try:
        module = importlib.import_module(module_name)
        named: Any = getattr(module, attribute) if attribute else None
    except ImportError as error:
        raise BadPlugin(name, f"cannot be imported: {error}") from error
    except AttributeError:
        raise BadPlugin(name, f"{module_name} has no {attribute}") from None
    if not attribute:
        # By identity: a module may have two names for one behavior, or import another module's.
        declared = {id(behavior): behavior for behavior in vars(module).values() if isinstance(behavior, Behavior)}
        if not declared:
            raise BadPlugin(name, "declares no behavior")
        return declared.values()
    if isinstance(named, Behavior):
        return (named,)
    if not callable(named):
        raise BadPlugin(name, "is neither a behavior nor a function")
    function: Added = named
    return function(tasks)
