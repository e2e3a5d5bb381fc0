"""Compare the short benchmarks with their last record, or add one.

PYTHONPATH=functions:. python -m tests.bench.records check [NAME ...]
PYTHONPATH=functions:. python -m tests.bench.records add --note "why" [NAME ...]
"""

import argparse
import sys
from typing import Final

from tests.bench.records.page import draw
from tests.bench.records.results import add, last, load, machine, slower
from tests.bench.records.short import BENCHMARKS, Figure, run, steady
from tests.kit.printing import print_now

# A neighbour that is busy throughout a benchmark is rarely so three times.
AGAIN: Final = 2


def main() -> int:
    """Run the benchmarks; return 1 if one is slower than its record allows."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.records", description="Short benchmarks.")
    parser.add_argument("what", choices=["check", "add", "draw"])
    parser.add_argument("names", nargs="*", metavar="NAME", help="some benchmarks only")
    parser.add_argument("--note", default="", help="what changed since the last record")
    given = parser.parse_args()
    if given.what == "draw":
        draw()
        return 0
    unknown = set(given.names) - BENCHMARKS.keys()
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    records, here = load(), machine()
    figures: dict[str, Figure] = {}
    problems: list[str] = []
    print_now(f"{'benchmark':28} {'CPU ms':>9} {'yardstick':>10} {'ratio':>7} {'recorded':>9}")
    for name in given.names or BENCHMARKS:
        figure = figures[name] = steady(BENCHMARKS[name]) if given.what == "add" else run(BENCHMARKS[name])
        for _ in range(AGAIN if given.what == "check" else 0):
            if slower(records, name, figure.ratio, here):
                figure = figures[name] = min(figure, run(BENCHMARKS[name]), key=lambda one: one.ratio)
        problem = slower(records, name, figure.ratio, here) if given.what == "check" else None
        found = last(records, name, here)
        recorded = f"{found[0]:9.3f}" if found else f"{'none':>9}"
        mark = "  SLOWER" if problem else ""
        print_now(f"{name:28} {figure.cpu_ms:9.1f} {figure.yardstick_ms:10.1f} {figure.ratio:7.3f} {recorded}{mark}")
        problems += [problem] if problem else []
    if given.what == "add":
        add(figures, given.note)
        draw()
        return 0
    for problem in problems:
        print_now(problem)
    print_now(f"bench-check: {len(figures)} benchmarks, {len(problems)} slower than recorded")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
