"""Whether a task got ahead between two hand-overs; pure functions, no I/O."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from delegation.tasks.life.model import Task

_MOST: Final = 50
"""So many details are compared each by itself, to bound the record."""

MEASURED: Final = "measured"
"""The detail in which an attempt states how large its work is, for the error of a task whose attempts are killed."""
ABOVE_A_FUNCTION: Final = "above_a_function"
"""The detail of a task whose measured size is more than a function was measured for."""

State = dict[str, int | float | str]
"""What a task kept, by name: numbers, and digests of anything else."""


def got_ahead(task: Task, before_text: str | None, *, by_texts: bool = True) -> tuple[bool, str | None]:
    """Return whether the task kept more than in the state before, and the state to store now.

    Progress is what the next attempt finds: details, what the work reported, children, a result, the beginning of
    effects. A number that is no higher than before is none, because work that starts from the beginning reports
    the same numbers again. Without `by_texts` a text that changed is none, as each attempt may note another moment at
    which it began. Being alive (`progress_ts`) is none either.
    """
    before: State = json.loads(before_text or "{}")
    now = state_of(task)
    counted = {
        name: value for name, value in now.items() if by_texts or name not in before or not isinstance(value, str)
    }
    ahead = any(_is_ahead(before.get(name), value) for name, value in counted.items())
    kept = {name: _further(before.get(name), value) for name, value in now.items()}
    state = {name: value for name, value in {**before, **kept}.items() if value != 0}
    return ahead, json.dumps(state, sort_keys=True, separators=(",", ":")) if state else None


def state_of(task: Task) -> State:
    """Return what the next attempt of a task finds."""
    reported = {} if task.progress is None else {"progress.done": task.progress.done}
    details = {name: value for name, value in task.details.items() if name not in (MEASURED, ABOVE_A_FUNCTION)}
    found = {**dict(sorted(_leaves(details, ""))), **dict(sorted(_leaves(task.reported, "reported."))), **reported}
    names = list(found)
    state: State = {name: _measured(found[name]) for name in names[:_MOST]}
    if names[_MOST:]:
        state["…"] = _digest([found[name] for name in names[_MOST:]])
    state["children"] = len(task.family.children) + (task.family.child_ordinal or 0)
    state["result"] = int(task.pending_result is not None)
    state["effects"] = int(task.effects_began_ts is not None)
    return state


def _leaves(value: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", inner


def _measured(value: Any) -> int | float | str:
    """Return counts and ages of what is not done."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else _digest(value)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _is_ahead(before: float | str | None, now: float | str) -> bool:
    if before is None:
        return now != 0
    return _further(before, now) != before


def _further(before: float | str | None, now: float | str) -> float | str:
    if before is None or isinstance(before, str) or isinstance(now, str):
        return now
    return max(before, now)
