"""Print the counts, or record them: python -m tests.counts [--record | --json]."""

import argparse
import json
import sys

from tests.counts.recorded import PYTHON, Recorded, installed, load, measure, record
from tests.counts.works import WORKS


def main() -> None:
    """Print each count beside the recorded one."""
    parser = argparse.ArgumentParser(prog="python -m tests.counts", description="Counts that may only fall.")
    parser.add_argument("--record", action="store_true", help="record what is measured, for this version of Python")
    parser.add_argument("--json", action="store_true", help="print what is measured as JSON")
    given = parser.parse_args()
    if given.record:
        record()
    measured = Recorded(packages=installed(), counts={name: measure(name) for name in WORKS})
    if given.json:
        sys.stdout.write(json.dumps(measured) + "\n")
        return
    known = load().get(PYTHON)
    recorded = known["counts"] if known else {}
    sys.stdout.write(f"{'Python ' + PYTHON:42} {'calls':>9} {'recorded':>9} {'bytes':>11} {'recorded':>11}\n")
    for name, now in measured["counts"].items():
        then = recorded.get(name, {"calls": 0, "bytes": 0})
        sys.stdout.write(f"{name:42} {now['calls']:9,} {then['calls']:9,} {now['bytes']:11,} {then['bytes']:11,}\n")


if __name__ == "__main__":
    main()
