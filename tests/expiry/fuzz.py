"""Compare what an expiry removes with Iceberg Java on random metadata: python -m tests.expiry.fuzz --sequences 10000.

The same snapshots, refs, schemas and partition specs must go, and the same questions must be refused.
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
from typing import Any, Final

from tests.expiry.compare import compared
from tests.expiry.documents import Documents
from tests.faults.shared.running import Running
from tests.kit.printing import print_now
from tests.persistence.applier.fixtures import spark_metadata
from tests.persistence.applier.oracle import Oracle, oracle

Json = dict[str, Any]

SOURCE: Final = Path(__file__).with_name("ExpiryOracle.java")


def question(seed: int, fixtures: list[Json]) -> Json:
    """Return the question of a seed."""
    rng = random.Random(seed)
    return Documents(rng).question(rng.choice(fixtures) if fixtures and rng.random() < 0.2 else None)


def run(
    ask: Oracle, seeds: Iterator[int], *, keep: Callable[[Json, Json], None] | None = None
) -> collections.Counter[str]:
    """Ask and compare, and return totals; differences are printed."""
    totals: collections.Counter[str] = collections.Counter()
    fixtures = [document for _, document in spark_metadata() if _is_read(ask, document)]
    totals["fixtures"] = len(fixtures)
    running = Running(every=30.0)
    for seed in seeds:
        asked = question(seed, fixtures)
        answer = ask.ask(asked)
        totals["documents"] += 1
        for line in compared(asked, answer, totals):
            totals["differences"] += 1
            print_now(f"seed {seed}: {line}")
        running.note(counts_of(totals))
        if keep is not None:
            keep(asked, answer)
    return totals


def _is_read(ask: Oracle, document: Json) -> bool:
    """Return whether Iceberg reads a document and would expire its snapshots."""
    options: Json = {"older_than_ms": None, "retain_last": None, "snapshot_ids": [], "clean": False}
    answer: Json = ask.ask({"document": document, "specs": {}, "now": 0, **options})
    return bool(answer["ok"])


def counts_of(totals: "collections.Counter[str]") -> str:
    """Return the totals as text."""
    return f"expiry-fuzz: {', '.join(f'{name} {count:,}' for name, count in sorted(totals.items()))}"


def main() -> None:
    """Run the fuzz and exit 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="write questions and answers to this file, .jsonl.xz")
    options = parser.parse_args()
    recorded: list[str] = []

    def keep(asked: Json, answer: Json) -> None:
        recorded.append(json.dumps({"asked": asked, "answer": answer}, ensure_ascii=False, separators=(",", ":")))

    began = time.monotonic()
    with oracle(SOURCE) as ask:
        seeds = iter(range(options.seed, options.seed + options.sequences))
        totals = run(ask, seeds, keep=keep if options.record else None)
    if options.record:
        options.record.write_bytes(lzma.compress(("\n".join(recorded) + "\n").encode(), preset=9))
    print_now(f"{counts_of(totals)}; {time.monotonic() - began:.0f} s")
    sys.exit(1 if totals["differences"] else 0)


if __name__ == "__main__":
    main()
