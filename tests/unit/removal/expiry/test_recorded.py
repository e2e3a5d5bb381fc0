"""An expiry removes what Iceberg Java removes: a recorded sample of `make expiry-fuzz`.

python -m tests.expiry.fuzz --sequences 400 --seed 900000 --record tests/expiry/recorded.jsonl.xz
"""

import collections
import functools
import json
import lzma
from typing import Any

from tests.expiry.compare import compared
from tests.paths import ROOT

RECORDED = ROOT / "tests" / "expiry" / "recorded.jsonl.xz"


@functools.cache
def recorded() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    with lzma.open(RECORDED, "rt", encoding="utf-8") as lines:
        return [(line["asked"], line["answer"]) for line in map(json.loads, lines)]


def test_what_iceberg_removes_is_removed_and_what_it_refuses_is_refused() -> None:
    totals: collections.Counter[str] = collections.Counter()
    differences = [line for asked, answer in recorded() for line in compared(asked, answer, totals)]
    assert not differences, differences[0]
    assert min(totals[f"{what} removed"] for what in ("snapshots", "refs", "schemas", "specs")) >= 10
    assert min(totals[f"kept: {why}"] for why in ("ref", "count", "age", "unreferenced")) >= 50
    assert sum(count for name, count in totals.items() if name.startswith("refused")) >= 50


def test_a_difference_is_noticed() -> None:
    """Of each recorded answer the opposite is a difference, and so is one snapshot or ref more or less."""
    for asked, answer in recorded()[:100]:
        if not answer["ok"]:
            opposite = {"ok": True, "snapshots": [], "refs": [], "schemas": [], "specs": []}
            is_ours = answer["message"] is None or answer["message"].startswith(
                ("arraySize", "Cannot expire snapshots: GC")
            )
            assert is_ours or list(compared(asked, opposite, collections.Counter()))
            continue
        for name, other in (("snapshots", 1_234), ("refs", "other")):
            changed = {**answer, name: answer[name][1:] or [other]}
            assert list(compared(asked, changed, collections.Counter()))
