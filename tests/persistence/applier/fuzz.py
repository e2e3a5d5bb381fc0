"""Compare the applier with Iceberg Java on random sequences of commits: make applier-fuzz.

The same commits must be accepted, with the same documents. Not compared are the order of statistics, which is that of a
hash map in Iceberg, the times of a view's log, and partition field ids that a client leaves to the catalog.
"""

import argparse
import collections
import json
import lzma
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.shared.running import Running
from tests.kit.printing import print_now
from tests.persistence.applier.compare import compared, outcome_of
from tests.persistence.applier.fixtures import spark_metadata
from tests.persistence.applier.oracle import Oracle, oracle
from tests.persistence.applier.sequences import Commits

Json = dict[str, Any]


def sequence(seed: int, now_ms: int, fixtures: list[Json]) -> Json:
    """Return a random sequence: a document or none, and commits that mostly fit what the former ones lead to."""
    rng = random.Random(seed)
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


def run(
    ask: Oracle, seeds: Iterator[int], *, keep: Callable[[Json, Json], None] | None = None
) -> collections.Counter[str]:
    """Compare sequences and return totals; differences are printed."""
    totals: collections.Counter[str] = collections.Counter()
    bases = [document for _, document in spark_metadata()]
    fixtures = [one for one in bases if "base-error" not in ask.ask({"kind": "table", "base": one, "commits": []})]
    totals["fixtures"], totals["fixtures that Iceberg does not read"] = len(fixtures), len(bases) - len(fixtures)
    running = Running(every=30.0)
    for seed in seeds:
        asked = sequence(seed, int(time.time() * 1000), fixtures)
        answer = ask.ask(asked)
        totals["sequences"] += 1
        for line in compared(asked, answer, totals):
            totals["differences"] += 1
            print_now(f"seed {seed}: {line}")
        running.note(counts_of(totals))
        if keep is not None:
            keep(asked, answer)
    return totals


def counts_of(totals: "collections.Counter[str]") -> str:
    """Return the totals as text, without the messages that differ."""
    shown = sorted((name, count) for name, count in totals.items() if not name.startswith("message: "))
    return f"applier-fuzz: {', '.join(f'{name} {count:,}' for name, count in shown)}"


def main() -> None:
    """Run the fuzz and exit 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="write sequences and answers to this file, .jsonl.xz")
    parser.add_argument("--messages", action="store_true", help="print the messages that differ from Iceberg's")
    options = parser.parse_args()
    recorded: list[str] = []

    def keep(asked: Json, answer: Json) -> None:
        recorded.append(json.dumps({"asked": asked, "answer": answer}, ensure_ascii=False, separators=(",", ":")))

    began = time.monotonic()
    with oracle() as ask:
        seeds = iter(range(options.seed, options.seed + options.sequences))
        totals = run(ask, seeds, keep=keep if options.record else None)
    if options.record:
        options.record.write_bytes(lzma.compress(("\n".join(recorded) + "\n").encode(), preset=9))
    for name, count in sorted(totals.items()) if options.messages else ():
        if name.startswith("message: "):
            print_now(f"{count:6} {name}")
    print_now(f"{counts_of(totals)}; {time.monotonic() - began:.0f} s")
    sys.exit(1 if totals["differences"] else 0)


if __name__ == "__main__":
    main()
