"""How many tasks may run at once: `delegation.limits.*`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from delegation.tasks.life.admission.lanes import Lane, part

PREFIX: Final = "delegation.limits."
_OF_TYPE: Final = "task-type."
_FORMER_OF_TYPE: Final = "kind."
"""The older spelling, which is still accepted."""
_EACH: Final = {"all": "everything", "tenant": "tenant", "bucket": "bucket"}
_NUMBER: Final = re.compile(r"[1-9]\d{0,5}")


@dataclass(frozen=True, slots=True)
class Caps:
    """Caps on tasks that run at once: all, of one tenant, on one bucket, of one task type; None is no cap."""

    everything: int | None = None
    tenant: int | None = None
    bucket: int | None = None
    task_types: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], refuse: Callable[[str, str], Exception]) -> Self | None:
        """Return the caps of these properties, None without any; raises what `refuse` makes of a name and a reason."""
        caps: dict[str, int] = {}
        task_types: dict[str, int] = {}
        for name, value in properties.items():
            key = name.removeprefix(PREFIX)
            if not _NUMBER.fullmatch(value):
                raise refuse(name, f"{value!r} is not a positive whole number")
            if key in _EACH:
                caps[_EACH[key]] = int(value)
            elif named := _task_type(key):
                if task_types.setdefault(part(named), int(value)) != int(value):
                    newer = f"{PREFIX}{_OF_TYPE}{named}"
                    raise refuse(f"{PREFIX}{_FORMER_OF_TYPE}{named}", f"is an older name of {newer}, which differs")
            else:
                raise refuse(name, "is not a property of this service")
        return cls(**caps, task_types=task_types) if properties else None

    def caps(self, lane: Lane) -> tuple[tuple[tuple[str, ...], int], ...]:
        """Return the caps that a task of a lane counts against, each with the key of its count."""
        found = (
            (("all",), self.everything),
            (("tenant", lane.tenant), self.tenant),
            (("bucket", lane.bucket), self.bucket if lane.bucket else None),
            (("task-type", lane.task_type), self.task_types.get(lane.task_type)),
        )
        return tuple((key, cap) for key, cap in found if cap is not None)


def _task_type(key: str) -> str | None:
    """Return the task type that a name after the prefix has a cap for, in either spelling."""
    return next((key.removeprefix(each) for each in (_OF_TYPE, _FORMER_OF_TYPE) if key.startswith(each)), None)
