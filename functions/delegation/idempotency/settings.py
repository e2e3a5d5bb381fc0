"""The operator's settings of idempotency keys (Idempotency-Key proposal, Appendix B)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Self

from delegation.tasks.life.policy import InvalidProperty, duration_property

PREFIX: Final = "polaris.idempotency."
_DEFAULT: Final = "PT30M"
_LONGEST: Final = timedelta(days=30)
"""Shorter than tasks are kept, because a replay may need the key's task."""


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Whether keys are honored, how long they are remembered, and whether expired records are deleted."""

    enabled: bool = True
    lifetime: timedelta = timedelta(minutes=30)
    cleanup: bool = True

    @property
    def advertised(self) -> timedelta | None:
        """How long a caller may repeat a request with its key, None if the service ignores keys."""
        return self.lifetime if self.enabled else None

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Read the properties with PREFIX; ignore others. `ttl` is Polaris' name of `lifetime`. Raises
        InvalidProperty."""
        values = {name.removeprefix(PREFIX): value for name, value in properties.items() if name.startswith(PREFIX)}
        enabled = _switch("enabled", values.pop("enabled", "true"))
        cleanup = _switch("cleanup.enabled", values.pop("cleanup.enabled", "true"))
        own, upstream = (values.pop(name, _DEFAULT) for name in ("lifetime", "ttl"))
        if upstream not in {own, _DEFAULT} and own != _DEFAULT:
            raise InvalidProperty(
                f"{PREFIX}ttl", f"{upstream!r} differs from {PREFIX}lifetime, which is {own!r}. Set only one of the two"
            )
        lifetime = _lifetime("lifetime", own) if upstream == _DEFAULT else _lifetime("ttl", upstream)
        for name in values:
            raise InvalidProperty(PREFIX + name, "is not a property of this service")
        return cls(enabled, lifetime, cleanup)


def _switch(name: str, value: str) -> bool:
    if value not in {"true", "false"}:
        raise InvalidProperty(PREFIX + name, f"{value!r} is neither true nor false")
    return value == "true"


def _lifetime(name: str, value: str) -> timedelta:
    name = PREFIX + name
    parsed = duration_property(name, value)
    if parsed.microseconds:
        raise InvalidProperty(name, f"{value!r} is not a whole number of seconds")
    if parsed > _LONGEST:
        raise InvalidProperty(name, f"{value!r} is longer than {_LONGEST.days}d")
    return parsed
