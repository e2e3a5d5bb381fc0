"""What a mutant is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """An edit: `before` occurs once in the file `path` and becomes `after`; one of `tests` must then fail."""

    name: str
    path: str
    before: str
    after: str
    tests: tuple[str, ...]
