"""Compare what an expiry removes with Iceberg Java on random metadata: python -m tests.expiry.fuzz --sequences 10000.

The same snapshots, refs, schemas and partition specs must go, and the same questions must be refused.
"""

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.expiry.compare import compared
from tests.expiry.documents import Documents
from tests.persistence.applier.fixtures import spark_metadata
from tests.persistence.applier.oracle import Fuzz, Oracle

Json = dict[str, Any]

SOURCE: Final = Path(__file__).with_name("ExpiryOracle.java")


def question(seed: int, fixtures: list[Json]) -> Json:
    """Return the question of a seed."""
    rng = random.Random(seed)
    return Documents(rng).question(rng.choice(fixtures) if fixtures and rng.random() < 0.2 else None)


def read_by_iceberg(ask: Oracle, _totals: Counter[str]) -> list[Json]:
    return [document for _, document in spark_metadata() if _is_read(ask, document)]


def _is_read(ask: Oracle, document: Json) -> bool:
    """Return whether Iceberg reads a document and would expire its snapshots."""
    options: Json = {"older_than_ms": None, "retain_last": None, "snapshot_ids": [], "clean": False}
    answer: Json = ask.ask({"document": document, "specs": {}, "now": 0, **options})
    return bool(answer["ok"])


if __name__ == "__main__":
    sys.exit(Fuzz("expiry-fuzz", "documents", SOURCE, read_by_iceberg, question, compared).main())
