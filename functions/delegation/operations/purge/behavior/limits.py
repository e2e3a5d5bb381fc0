"""The operator's settings `delegation.purge.*`: a request may choose a stricter value, never a looser one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Self, cast

from delegation.operations.purge.behavior.references import REFERENCE_SETTINGS
from delegation.operations.purge.options import PurgeOptions, ReferenceMode
from delegation.tasks.life.policy import InvalidProperty, Policies

PREFIX: Final = "delegation.purge."
_OF_OTHERS: Final = ("polaris.idempotency.", "delegation.drop.")
"""Properties that `idempotency.settings` and `gateway.drop.settings` read."""

STRICTEST_FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "outside": ("refuse", "keep", "delete"),
    "uncovered": ("refuse", "keep"),
    "shared": ("refuse", "subtract"),
    "overlap-scan": ("catalog", "namespace"),
    "versioned": ("refuse", "report"),
    "deleteMarkerFiles": ("false", "true"),
}
"""Choices of both the operator and a request. Deleting more is looser, and so is checking fewer tables."""

_SETTING_OF: Final = {"deleteMarkerFiles": "delete-marker-files"}
# The loosest values that a request may choose; directory markers are deleted only when it chooses that.
_DEFAULTS: Final = {
    "outside": "keep",
    "uncovered": "refuse",
    "shared": "subtract",
    "overlap-scan": "namespace",
    "versioned": "report",
    "deleteMarkerFiles": "true",
}
# Where the value for a silent request is a setting of its own, stricter than the loosest one that may be chosen.
_SILENT: Final = {"outside": "refuse"}
_LOOSEST: Final = "-loosest"
# Set by the operator alone: each protects other tables, or leaves files that nothing names. The default comes first.
_OPERATOR_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "gc-disabled": ("refuse", "ignore"),
    "delete-probe": ("true", "false"),
    "experimental-format": ("false", "true"),
    "references": ("index", "location", "namespace"),
    "damaged": ("refuse", "keep"),
    "unsupported": ("refuse", "keep"),
    "ambiguous": ("refuse", "keep"),
    "neighbour": ("refuse", "report"),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The loosest allowed value of each choice, by the request's names; `base` holds what only the operator sets.

    `silent` has the values for a request that does not choose, where they differ from the loosest ones.
    """

    choices: Mapping[str, str] = field(default_factory=lambda: dict(_DEFAULTS))
    silent: Mapping[str, str] = field(default_factory=lambda: dict(_SILENT))
    base: PurgeOptions = field(default_factory=PurgeOptions)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that begin with PREFIX and ignore all others; raise InvalidProperty."""
        choices, silent = dict(_DEFAULTS), dict(_SILENT)
        operator_only = {name: values[0] for name, values in _OPERATOR_ONLY.items()}
        requests = {_setting_of(name): name for name in STRICTEST_FIRST}
        for full, value in properties.items():
            if not full.startswith(PREFIX):
                continue
            name = full.removeprefix(PREFIX)
            if name in _SILENT:
                silent[name] = _one_of(full, value, STRICTEST_FIRST[name])
            elif name in requests:
                choices[requests[name]] = _one_of(full, value, STRICTEST_FIRST[requests[name]])
            elif name in operator_only:
                operator_only[name] = _one_of(full, value, _OPERATOR_ONLY[name])
            elif name not in REFERENCE_SETTINGS:
                raise InvalidProperty(full, "is not a property of this service")
        base = PurgeOptions(
            gc_disabled=cast("Literal['refuse', 'ignore']", operator_only["gc-disabled"]),
            probe=operator_only["delete-probe"] == "true",
            experimental_format=operator_only["experimental-format"] == "true",
            references=cast("ReferenceMode", operator_only["references"]),
            damaged=cast("Literal['refuse', 'keep']", operator_only["damaged"]),
            unsupported=cast("Literal['refuse', 'keep']", operator_only["unsupported"]),
            ambiguous=cast("Literal['refuse', 'keep']", operator_only["ambiguous"]),
            neighbour=cast("Literal['refuse', 'report']", operator_only["neighbour"]),
        )
        _check_silent(silent, choices)
        return cls(choices, silent, base)

    def allows(self, name: str, value: str) -> bool:
        """Return whether a request may choose this value: the operator's or a stricter one."""
        return not _is_looser(name, value, self.choices[name])

    def default(self, name: str) -> str:
        """Return the value for a request that does not choose one."""
        return "false" if name == "deleteMarkerFiles" else self.silent.get(name, self.choices[name])


def policies_of(properties: Mapping[str, str]) -> tuple[Policies, Limits]:
    """Read the service's properties for tasks and for purges; raise InvalidProperty for an unknown or wrong one."""
    tasks = {name: value for name, value in properties.items() if not name.startswith((PREFIX, *_OF_OTHERS))}
    return Policies.from_properties(tasks), Limits.from_properties(properties)


def _setting_of(name: str) -> str:
    """Return the property, without its prefix, that has the loosest value which a request may choose."""
    return name + _LOOSEST if name in _SILENT else _SETTING_OF.get(name, name)


def _is_looser(name: str, value: str, than: str) -> bool:
    order = STRICTEST_FIRST[name]
    return order.index(value) > order.index(than)


def _check_silent(silent: Mapping[str, str], choices: Mapping[str, str]) -> None:
    """Raise InvalidProperty for a value that a silent request would get and an explicit one could not choose."""
    for name, value in silent.items():
        if _is_looser(name, value, choices[name]):
            raise InvalidProperty(
                PREFIX + name,
                f"{value!r} is looser than {PREFIX}{_setting_of(name)}, which is {choices[name]!r}; set that as well",
            )


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidProperty(name, f"{value!r} is not one of {', '.join(allowed)}")
    return value
