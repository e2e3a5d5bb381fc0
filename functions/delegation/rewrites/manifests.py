"""Which manifests are rewritten, for each partition spec. Pure functions of their number, their size, and how the
partitions are spread over them.

Iceberg's action rewrites all manifests of a spec, even if as many remain. So a spec is left unless half as many would
remain, or be read by a scan of one partition: otherwise manifests would be rewritten forever.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

TARGET_PROPERTY: Final = "commit.manifest.target-size-bytes"
DEFAULT_TARGET: Final = 8 * 1024 * 1024
"""Iceberg documentation, Configuration, write properties."""
_HALF: Final = 2


@dataclass(frozen=True, slots=True)
class ManifestState:
    """The manifests of one spec and content. `partitions` is the number of distinct partitions, `spread` the sum of
    each manifest's number. `uncounted` manifests do not state their number of files, as version 1 allows."""

    spec_id: int
    is_of_deletes: bool = False
    manifests: int = 0
    bytes: int = 0
    partitions: int = 0
    spread: int = 0
    uncounted: int = 0


@dataclass(frozen=True, slots=True)
class ManifestWork:
    """What a rewrite reads, writes and gains."""

    manifests: int = 0
    bytes: int = 0
    manifests_after: int = 0
    opened: float = 0.0
    opened_after: float = 0.0

    def __add__(self, other: "ManifestWork") -> "ManifestWork":
        return ManifestWork(
            self.manifests + other.manifests,
            self.bytes + other.bytes,
            self.manifests_after + other.manifests_after,
            self.opened + other.opened,
            self.opened_after + other.opened_after,
        )

    @property
    def gain(self) -> float:
        """Manifests removed, plus those that a scan of one partition no longer opens."""
        return self.manifests - self.manifests_after + self.opened - self.opened_after


class ManifestsLeft(StrEnum):
    """Why the manifests of a spec are left alone."""

    NO_GAIN = "too few manifests removed by a rewrite"
    BENEFIT = "fewer manifests removed per unit of currency than min-benefit"
    UNCOUNTED = "number of files not stated in a manifest"


@dataclass(frozen=True, slots=True)
class ManifestsChoice:
    """The specs whose manifests are rewritten, highest gain first, and the others with the reason."""

    chosen: Mapping[int, ManifestWork] = field(default_factory=dict)
    left: Mapping[int, ManifestsLeft] = field(default_factory=dict)

    @property
    def work(self) -> ManifestWork:
        return sum(self.chosen.values(), ManifestWork())


def target_size(properties: Mapping[str, str]) -> int:
    """Return the table's target size of a manifest. An unreadable one becomes Iceberg's default."""
    text = properties.get(TARGET_PROPERTY, "")
    return (int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0) or DEFAULT_TARGET


def work_of(state: ManifestState, target: int) -> ManifestWork:
    """Return what the action does to the manifests of a spec and content. It sorts, so each partition is in few."""
    after = max(1, -(-state.bytes // target)) if state.manifests else 0
    partitions = max(state.partitions, 1)
    best = min(state.spread, partitions + after - 1)
    return ManifestWork(state.manifests, state.bytes, after, state.spread / partitions, best / partitions)


def choose_manifests(
    states: Iterable[ManifestState],
    target: int,
    *,
    cost: Callable[[ManifestWork], float],
    min_benefit: float = 0.0,
    spec_id: int | None = None,
) -> ManifestsChoice:
    """Return the specs to rewrite, or only `spec_id`. `cost` returns the price of the work for one spec."""
    by_spec: dict[int, list[ManifestState]] = {}
    for state in states:
        if spec_id in (None, state.spec_id):
            by_spec.setdefault(state.spec_id, []).append(state)
    chosen: dict[int, ManifestWork] = {}
    left: dict[int, ManifestsLeft] = {}
    for spec, of_spec in sorted(by_spec.items()):
        work = sum((work_of(state, target) for state in of_spec), ManifestWork())
        if not any(_is_worse(work_of(state, target)) for state in of_spec):
            left[spec] = ManifestsLeft.NO_GAIN
        elif any(state.uncounted for state in of_spec):
            left[spec] = ManifestsLeft.UNCOUNTED
        elif work.gain < cost(work) * min_benefit:
            left[spec] = ManifestsLeft.BENEFIT
        else:
            chosen[spec] = work
    return ManifestsChoice(dict(sorted(chosen.items(), key=lambda spec: -spec[1].gain)), left)


def _is_worse(work: ManifestWork) -> bool:
    """Return whether half the manifests would suffice, for a scan of the table or of one partition."""
    if work.manifests <= 1:
        return False
    return work.manifests >= _HALF * work.manifests_after or work.opened >= _HALF * work.opened_after
