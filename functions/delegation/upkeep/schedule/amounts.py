"""What a run does, and a policy may do in a day: files, bytes, and millionths of a currency."""

from dataclasses import dataclass, fields
from typing import Final

from delegation.upkeep.errors import ScheduleInvalid

MICROS: Final = 1_000_000
"""Of one unit of currency. Whole numbers add up exactly, whatever the order."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Files deleted or rewritten, their bytes, and the cost in millionths of a currency; none negative."""

    files: int = 0
    bytes: int = 0
    micros: int = 0

    def __post_init__(self) -> None:
        """Refuse negative numbers, which would return what other runs used."""
        if min(self.files, self.bytes, self.micros) < 0:
            raise ValueError(f"an amount of work is negative: {self}")

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.files + other.files, self.bytes + other.bytes, self.micros + other.micros)

    def at_least(self, other: "Amount") -> "Amount":
        """Return the maximum of each number."""
        return Amount(max(self.files, other.files), max(self.bytes, other.bytes), max(self.micros, other.micros))


NOTHING: Final = Amount()


@dataclass(frozen=True, slots=True)
class Budget:
    """What one policy may use in a day, unlimited if None. Raises ScheduleInvalid for a number below 1."""

    files: int | None = None
    bytes: int | None = None
    micros: int | None = None

    def __post_init__(self) -> None:
        """Refuse a budget of nothing: the policy would be on and never run."""
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and value < 1:
                raise ScheduleInvalid(f"the daily budget of {one.name} is {value}; it must be at least 1, or left out")

    def allows(self, amount: Amount) -> bool:
        return all(
            most is None or used <= most
            for most, used in ((self.files, amount.files), (self.bytes, amount.bytes), (self.micros, amount.micros))
        )


UNLIMITED: Final = Budget()
