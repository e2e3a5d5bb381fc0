"""Compare the applier with Iceberg Java on random sequences of commits: make applier-fuzz.

The same commits must be accepted, with the same documents. Not compared are the order of statistics, which is that of a
hash map in Iceberg, the times of a view's log, and partition field ids that a client leaves to the catalog.
"""

import random
import sys
import time
from collections import Counter
from typing import Any

from tests.persistence.applier.compare import compared, outcome_of
from tests.persistence.applier.fixtures import spark_metadata
from tests.persistence.applier.oracle import SOURCE, Fuzz, Oracle
from tests.persistence.applier.sequences import Commits

Json = dict[str, Any]


def sequence(seed: int, fixtures: list[Json]) -> Json:
    """Return a random sequence: a document or none, and commits that mostly fit what the former ones lead to."""
    rng, now_ms = random.Random(seed), int(time.time() * 1000)
    commits = Commits(rng, now_ms)
    kind = "view" if rng.random() < 0.15 else "table"
    base: Json | None = None
    found: list[Json] = []
    if kind == "table" and fixtures and rng.random() < 0.2:
        base = rng.choice(fixtures)
    else:
        found.append(_creation(commits, kind, now_ms))
    document = base
    for number in range(rng.randint(2, 8)):
        if number or base is not None:
            found.append(commits.table(document or {}) if kind == "table" else commits.view(document or {}))
        outcome = outcome_of(kind, document, found[-1], now_ms)
        document = outcome.document if outcome.ok else document
        if document is None:
            break
    return {"kind": kind, "base": base, "commits": found}


def _creation(commits: Commits, kind: str, now_ms: int) -> Json:
    """Return a commit that creates a table or view, most often one that is accepted."""
    for _ in range(30):
        version = commits.rng.choice([1, 2, 2, 3, 3])
        updates = commits.creation(version) if kind == "table" else commits.view_creation()
        requirements = [{"type": "assert-create"}] if kind == "table" else []
        commit = commits.spoiled({"requirements": requirements, "updates": updates, "file": None})
        if commits.chance(0.05) or outcome_of(kind, None, commit, now_ms).ok:
            break
    return commit


def read_by_iceberg(ask: Oracle, totals: Counter[str]) -> list[Json]:
    """Return the documents of Spark that Iceberg reads, and count the others."""
    bases = [document for _, document in spark_metadata()]
    read = [one for one in bases if "base-error" not in ask.ask({"kind": "table", "base": one, "commits": []})]
    totals["fixtures that Iceberg does not read"] = len(bases) - len(read)
    return read


if __name__ == "__main__":
    sys.exit(Fuzz("applier-fuzz", "sequences", SOURCE, read_by_iceberg, sequence, compared).main())
