"""Iceberg runtimes: the version that rewrites are made for, and what other versions do to a table.

A job brings its own runtime jar, so that the release label of a cluster does not decide. Which one is loaded is read
from the jar itself.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.rewrites.context import ManifestsRewrite, Rewrite
from delegation.rewrites.errors import runtime_unsound
from polaris_common.errors import printable

Version = tuple[int, int, int]
PINNED: Final = "1.12.0"
"""The runtime of sessions on one machine, for Spark 4.1. Jobs on EMR bring their `emr_jars`: 1.11.0, for Spark 4.0."""
JARS: Final = tuple(
    f"org.apache.iceberg:{name}:{PINNED}" for name in ("iceberg-spark-runtime-4.1_2.13", "iceberg-aws-bundle")
)
"""Its Maven coordinates, and those of what reads and writes S3."""
NEWEST_FORMAT: Final = 3
_NUMBERS: Final = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True, slots=True)
class RuntimeFault:
    """A fault of released runtimes: Iceberg's pull request with its fix, and what the fault does.

    `sound` are the first sound versions of release lines, released or not; the last of them is the first of all later
    lines. `refused` returns whether a rewrite of a table is refused for it; None: a rewrite that meets it changes
    nothing for the worse.
    """

    fixed_by: int
    harm: str
    sound: tuple[Version, ...]
    refused: Callable[[Rewrite, Mapping[str, Any]], bool] | None = None

    def is_in(self, version: Version) -> bool:
        """Return whether a runtime has the fault."""
        if version >= self.sound[-1]:
            return False
        return not any(version[:2] == release[:2] and version >= release for release in self.sound)


def _manifests_of_v3(rewrite: Rewrite, metadata: Mapping[str, Any]) -> bool:
    return isinstance(rewrite, ManifestsRewrite) and _format(metadata) >= 3


LOST_ROW_IDS: Final = RuntimeFault(
    fixed_by=16699,
    harm="it changes row ids when it rewrites the manifests of a table with format version 3",
    sound=((1, 10, 3), (1, 11, 1), (1, 12, 0)),
    refused=_manifests_of_v3,
)
STALLED_BY_UPDATES: Final = RuntimeFault(
    fixed_by=17764,
    harm="it commits no group if two commits changed one data file of a table with format version 3 during the rewrite",
    sound=((1, 12, 0),),
)
LEFT_DELETES: Final = RuntimeFault(
    # Instead of 17205, which was closed.
    fixed_by=15727,
    harm="it keeps position deletes of a rewritten file until all data files of their partition are newer",
    sound=((1, 12, 0),),
)
FAULTS: Final = (LOST_ROW_IDS, STALLED_BY_UPDATES, LEFT_DELETES)
"""tests/rewrites/faults.py shows each by a run. Runtime 1.12.0 has none of them."""


def check_runtime(version: str, rewrite: Rewrite, metadata: Mapping[str, Any]) -> None:
    """Raise RewriteError (RUNTIME_UNSOUND) if the loaded runtime would harm this table, or might."""
    numbers, newest = version_of(version), _format(metadata)
    if newest > NEWEST_FORMAT:
        raise runtime_unsound(f"the table has format version {newest}; rewrites support versions up to {NEWEST_FORMAT}")
    for fault in FAULTS:
        is_refused = fault.refused is not None and fault.refused(rewrite, metadata)
        if is_refused and (numbers is None or fault.is_in(numbers)):
            raise runtime_unsound(
                f"the Iceberg runtime {printable(version)} lacks the fix of Iceberg's pull request {fault.fixed_by}: "
                f"{fault.harm}. Use runtime {PINNED} or later, which needs Spark 4.1"
            )


def version_of(text: str) -> Version | None:
    """Return the numbers of a version such as `1.10.1-amzn-0`, None for a text that has none."""
    numbers = _NUMBERS.match(text)
    return None if numbers is None else (int(numbers[1]), int(numbers[2]), int(numbers[3] or 0))


def _format(metadata: Mapping[str, Any]) -> int:
    return int(metadata["format-version"])
