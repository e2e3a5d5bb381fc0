"""The record beside a plan that `delegation purge` makes: a damaged record is refused with the right reason."""

import json
from typing import Any

import pytest

from delegation.removal.errors import PlanTampered
from delegation.removal.purge.direct import FORMAT, HEAD, DirectHead
from delegation.storage.memory import MemoryPlanStore

STORED = {"format": FORMAT, "metadata_location": "s3://lake/t/v1.json", "table_uuid": "u", "segments": []}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"format": FORMAT + 1}, "format"),
        ({"table_uuid": None}, "not text"),
        ({"segments": [{"id": 7, "sha256": "a"}]}, "not text"),
    ],
)
def test_a_damaged_record_is_refused_with_its_reason(change: dict[str, Any], reason: str) -> None:
    plans = MemoryPlanStore()
    plans.put(HEAD, json.dumps(STORED | change).encode())
    with pytest.raises(PlanTampered, match=reason) as refused:
        DirectHead(plans)
    assert ("format" in str(refused.value)) is ("format" in change)
