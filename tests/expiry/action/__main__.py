"""Compare expiries with Iceberg's ExpireSnapshots action on tables that Spark wrote: python -m tests.expiry.action.

Each table of tests/fixtures with several snapshots is expired on two copies, by the action (Spark's procedure
expire_snapshots) and by this service, with several sets of options: the same snapshots, refs, schemas and partition
specs must go, and the same files, or fewer for a reason that is counted.
"""

import argparse
import collections
import json
import logging
import lzma
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.expiry.action.compare import RECORDED, Totals, compared, recorded
from tests.expiry.action.iceberg import answers
from tests.expiry.action.questions import Json, questions
from tests.faults.shared.running import Running, print_now
from tests.fixtures.lakehouse import Lakehouse

_EVERY: Final = 10
"""Answers between two writes of the record: a run that is ended leaves what it has."""


def counts_of(totals: Totals) -> str:
    """Return the totals as text."""
    return f"expiry-oracle: {', '.join(f'{name} {count:,}' for name, count in sorted(totals.items()))}"


def _record(known: dict[str, Json]) -> None:
    lines = [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for _, one in sorted(known.items())]
    RECORDED.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode(), preset=9))


def main() -> None:
    """Ask Iceberg, compare, and exit 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the questions' names, such as statistics.v3")
    parser.add_argument("--most", type=int, default=None, help="how many questions are asked")
    parser.add_argument("--record", action="store_true", help=f"add the answers to {RECORDED.name}; ask what it lacks")
    options = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    known = recorded() if options.record else {}
    asked = [one for one in questions() if options.only in one.key and one.key not in known][: options.most]
    totals: Totals = collections.Counter(tables=len({(one.scenario, one.table) for one in asked}))
    running = Running(every=30.0)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Lakehouse(Path(folder)) as lake:
        for question, answer in answers(lake, asked):
            totals["expiries"] += 1
            known[question.key] = answer
            for line in compared(question, answer, totals):
                totals["differences"] += 1
                print_now(f"{question.key}: {line}")
            running.note(counts_of(totals))
            if options.record and totals["expiries"] % _EVERY == 0:
                _record(known)
    if options.record:
        _record(known)
    print_now(f"{counts_of(totals)}; {time.monotonic() - began:.0f} s")
    sys.exit(1 if totals["differences"] else 0)


if __name__ == "__main__":
    main()
