"""What the operator's settings allow a request to choose: `delegation.purge.*` among the service's properties.

A setting is what holds for every purge; a request may ask for something stricter and for nothing looser.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self, cast

from delegation.operations.purge.options import PurgeOptions
from delegation.tasks.life.policy import InvalidProperty, Policies

PREFIX: Final = "delegation.purge."

STRICTEST_FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "outside": ("refuse", "keep", "delete"),
    "uncovered": ("refuse", "keep"),
    "shared": ("refuse", "subtract"),
    "overlap-scan": ("catalog", "namespace"),
    "versioned": ("refuse", "report"),
    "deleteMarkerFiles": ("false", "true"),
}
"""What both the operator and a request can choose; deleting more is looser, and so is looking less far."""

_SETTING_OF: Final = {"deleteMarkerFiles": "delete-marker-files"}
# How the operator's settings stand when nothing is set. Marker files go only where a request says so, but it may.
_DEFAULTS: Final = {
    "outside": "keep",
    "uncovered": "refuse",
    "shared": "subtract",
    "overlap-scan": "namespace",
    "versioned": "report",
    "deleteMarkerFiles": "true",
}
# For the operator alone: what each turns off protects others, so no request has a say.
_OPERATORS: Final[Mapping[str, tuple[str, str]]] = {
    "gc-disabled": ("refuse", "ignore"),
    "delete-probe": ("true", "false"),
    "experimental-format": ("false", "true"),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The loosest value of each choice, under the request's names; `base` holds what only the operator sets."""

    choices: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULTS))
    base: PurgeOptions = field(default_factory=PurgeOptions)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """From the properties that begin with PREFIX, the others are not looked at; raises InvalidProperty."""
        choices = dict(_DEFAULTS)
        own = {name: values[0] for name, values in _OPERATORS.items()}
        requests = {_SETTING_OF.get(name, name): name for name in STRICTEST_FIRST}
        for full, value in properties.items():
            if not full.startswith(PREFIX):
                continue
            name = full.removeprefix(PREFIX)
            if name in requests:
                choices[requests[name]] = _one_of(full, value, STRICTEST_FIRST[requests[name]])
            elif name in own:
                own[name] = _one_of(full, value, _OPERATORS[name])
            else:
                raise InvalidProperty(full, "is not a property of this service")
        base = PurgeOptions(
            gc_disabled=cast("Literal['refuse', 'ignore']", own["gc-disabled"]),
            probe=own["delete-probe"] == "true",
            experimental_format=own["experimental-format"] == "true",
        )
        return cls(choices, base)

    def allows(self, name: str, value: str) -> bool:
        """Whether a request may choose this: it is what is set, or stricter."""
        order = STRICTEST_FIRST[name]
        return order.index(value) <= order.index(self.choices[name])

    def default(self, name: str) -> str:
        """What holds when the request says nothing."""
        return "false" if name == "deleteMarkerFiles" else self.choices[name]


def policies_of(properties: Mapping[str, str]) -> tuple[Policies, Limits]:
    """What the service's properties say on tasks and on purges; InvalidProperty names one that is unknown or wrong."""
    tasks = {name: value for name, value in properties.items() if not name.startswith(PREFIX)}
    return Policies.from_properties(tasks), Limits.from_properties(properties)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidProperty(name, f"{value!r} is not one of {', '.join(allowed)}")
    return value
