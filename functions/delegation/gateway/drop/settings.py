from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal, Self, cast

from delegation.identifiers import TableIdentifier
from delegation.tasks.life.policy import InvalidProperty, duration_property

PREFIX: Final = "delegation.drop."
MODE_HEADER: Final = "X-Delegation-Drop-Mode"
"""The request header for a mode other than the setting's."""
TABLE_UUID_HEADER: Final = "X-Delegation-Table-Uuid"
"""The request header with the table's uuid: the request is for that table only, not for another of its name."""
TOMBSTONE_HEADER: Final = "X-Delegation-Tombstone"
"""The header of a 204 with the tombstone's id."""
STATE_HEADER: Final = "X-Delegation-Tombstone-State"
"""The header with the tombstone's state when the request was answered: DROPPED if all files are deleted."""
PURGE_AFTER_HEADER: Final = "X-Delegation-Purge-After"
"""The header with the end of the grace period, in UTC; without it the purge starts at once."""
TOMBSTONE_NAMESPACE: Final = ("delegation_tombstones",)
_GRACE: Final = f"{PREFIX}grace"
_ZERO: Final = frozenset({"0", "0s", "pt0s"})

DropMode = Literal["at-once", "wait"]
MODES: Final = ("at-once", "wait")
Unsupported = Literal["refuse", "pass"]


@dataclass(frozen=True, slots=True)
class DropSettings:
    """The operator's settings `delegation.drop.*`. `mode`: answer once the table has lost its name, or wait for the
    purge. `grace` is how long a table can be restored; `graces` overrides it by dotted name of a catalog or namespace.
    Callers with one of `trusted_roles` (principal roles) need not prove that they may delete files. Tables are renamed
    into `tombstone_namespace`. What the catalog does not support is refused or forwarded unchanged."""

    mode: DropMode = "at-once"
    grace: timedelta = timedelta(0)
    graces: Mapping[str, timedelta] = field(default_factory=dict)
    trusted_roles: frozenset[str] = frozenset()
    tombstone_namespace: tuple[str, ...] = TOMBSTONE_NAMESPACE
    unsupported: Unsupported = "refuse"

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties that start with PREFIX; ignore all others. Raises InvalidProperty."""
        own = {name: value for name, value in properties.items() if name.startswith(PREFIX)}
        graces = {
            name.removeprefix(f"{_GRACE}."): _duration(name, own.pop(name))
            for name in list(own)
            if name.startswith(f"{_GRACE}.")
        }
        levels = own.pop(f"{PREFIX}tombstone-namespace", ".".join(TOMBSTONE_NAMESPACE)).split(".")
        if not all(levels):
            raise InvalidProperty(f"{PREFIX}tombstone-namespace", "has an empty level; write levels as `a.b`")
        roles = own.pop(f"{PREFIX}trusted-roles", "")
        settings = cls(
            mode=cast("DropMode", _one_of(f"{PREFIX}mode", own.pop(f"{PREFIX}mode", "at-once"), MODES)),
            grace=_duration(_GRACE, own.pop(_GRACE, "0")),
            graces=graces,
            trusted_roles=frozenset(role.strip() for role in roles.split(",") if role.strip()),
            tombstone_namespace=tuple(levels),
            unsupported=cast(
                "Unsupported",
                _one_of(f"{PREFIX}unsupported", own.pop(f"{PREFIX}unsupported", "refuse"), ("refuse", "pass")),
            ),
        )
        for name in own:
            raise InvalidProperty(name, "is not a property of this service")
        return settings

    def grace_of(self, identifier: TableIdentifier) -> timedelta:
        """Return a table's grace period: its nearest namespace's, else its catalog's, else the default."""
        levels = (identifier.catalog, *identifier.namespace)
        for length in range(len(levels), 0, -1):
            grace = self.graces.get(".".join(levels[:length]))
            if grace is not None:
                return grace
        return self.grace

    def mode_of(self, asked: str | None) -> DropMode:
        """Return a request's mode; `asked` is its header's value, which must be one of MODES."""
        return self.mode if asked is None else cast("DropMode", asked)


def _duration(name: str, value: str) -> timedelta:
    if value.strip().lower() in _ZERO:
        return timedelta(0)
    return duration_property(name, value)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidProperty(name, f"{value!r} is not one of {', '.join(allowed)}")
    return value
