"""Which engine deletes the files of a plan, and where the measured limit between the two is."""

from typing import Final, Literal

from delegation.errors import RunHandedOver
from polaris_common.errors import counted

EngineChoice = Literal["inline", "spark"]

INLINE_MAX_FILES: Final = 1_000_000
"""The most files that are deleted inline unless an operator sets another number; the only place that states it.

S3 deletes 3,500 keys a second of one prefix, for either engine: so many take it five minutes of a Lambda's fifteen, and
at half that rate ten. Up to here the inline engine takes less CPU, memory and time than Spark, and its memory
does not grow (docs/costs.md, "Inline or Spark").
"""
LONGEST_PLANNING_SECONDS: Final = 300.0
"""How long a function plans at most: an attempt that is handed over before its plan is made begins anew."""
MOST_READ_AHEAD_BYTES: Final = 768 * 1024 * 1024
"""Bytes of manifests that a function has in memory at a time at most."""
READ_SECONDS: Final = 0.05
"""The time of one read from the store."""


def engine_for(files: int, *, inline_max_files: int, has_spark: bool = True) -> EngineChoice:
    """Return the engine for so many files; without Spark they are deleted inline, in as many attempts as it takes."""
    return "spark" if has_spark and files > inline_max_files else "inline"


class HandedToSpark(RunHandedOver):
    """One process would take too long for the files that are left; the next attempt deletes them with Spark."""

    def __init__(self, task_id: str, files: int, *, does: str = "deletes the rest") -> None:
        super().__init__(task_id, f"the next attempt {does}, {counted(files, 'file')}, with Spark")
