"""What a plan keeps is read again, whatever characters the paths have: Unicode has line breaks that JSON leaves."""

from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.iceberg.paths import RANK, FileType
from delegation.removal.index import PlanIndex, PlanWriter
from delegation.removal.purge.kept_files import kept_rows, refuse_kept_root
from delegation.removal.purge.not_covered import VERDICT, _kept_rows
from delegation.storage.memory import MemoryPlanStore

ROOT = "s3://lake/wh/t/metadata/1.metadata.json"
BREAKS = pytest.mark.parametrize("line_break", ["\u2028", "\u2029", "\x85"], ids=ascii)


def plan_that_keeps(plans: MemoryPlanStore, verdict: str, *paths: str) -> PlanIndex:
    writer = PlanWriter(plans, "plan", chunk_paths=9)
    writer.write([(path, RANK[FileType.DATA], 7) for path in paths], verdict)
    chunks, _ = writer.close()
    fields: dict[str, Any] = {"chunks": tuple(chunks), "roots": ("s3://lake/wh/t/",), "taken": ("s3://lake/wh/t/",)}
    return PlanIndex.model_construct(plan_id="plan", covered=None, findings=(), metadata_location=ROOT, **fields)


@BREAKS
def test_files_that_were_kept_for_a_live_table_or_not_covered_are_found_again(line_break: str) -> None:
    plans, path = MemoryPlanStore(), f"s3://lake/wh/t/data/a{line_break}b.parquet"
    for read, verdict in ((kept_rows, "shared"), (_kept_rows, VERDICT)):
        assert list(read(plans, plan_that_keeps(plans, verdict, path))) == [(path, RANK[FileType.DATA], 7)]


@BREAKS
def test_why_the_metadata_file_is_kept_is_found(line_break: str) -> None:
    plans = MemoryPlanStore()
    index = plan_that_keeps(plans, "foreign", f"s3://lake/wh/t/data/a{line_break}b.parquet", ROOT)
    with pytest.raises(GuardRefused, match="the plan keeps"):
        refuse_kept_root(plans, index, ())
