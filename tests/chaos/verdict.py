"""Whether a run caught the faults that were planted in it, and by which finding."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tests.chaos.findings import Finding, Found

CAUGHT_BY: Final[Mapping[str, Found]] = MappingProxyType(
    {"success-too-early": Found.LEFT, "blind-to-clones": Found.WRONGLY_DELETED}
)
"""The finding that a run must have for each planted fault."""
_CONSEQUENCES: Final = frozenset({*CAUGHT_BY.values(), Found.RECEIPT})
"""A receipt counts what a planted fault did, too."""


def verdict(planted: Sequence[str], findings: Sequence[Finding]) -> tuple[list[str], bool]:
    """Return a line for each planted fault, and whether all were caught and nothing else was found."""
    lines: list[str] = []
    caught = True
    for name in planted:
        by = [each for each in findings if each.found is CAUGHT_BY[name]]
        caught = caught and bool(by)
        how = f"caught {len(by)} times, first by “{by[0]}”" if by else "NOT CAUGHT"
        lines.append(f"planted {name}: {how}")
    others = [each for each in findings if each.found not in _CONSEQUENCES]
    lines += [f"not planted: {each}" for each in others]
    return lines, caught and not others
