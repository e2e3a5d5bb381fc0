"""Kill a purge before and after each of its calls, run it again, and count what is left, with both engines.

    PYTHONPATH=functions:. python -m tests.faults.crashes.matrix [--engine inline|spark] [--every]

Calls are those to the table's store, the plan's store, the catalog and the task. Each scenario runs once to record its
calls, then twice for each call: either the call has no effect, or only its answer is lost. `spark_matrix` describes
what is killed with Spark; there only some calls are killed in the later scenarios and with lost executors, unless
`--every` is given. Totals are printed as they go, every few seconds; the last line has all. The exit status is 1 if a
file is left, an error is raised, another table is harmed or a plan is made twice.
"""

import argparse
import sys
from collections.abc import Callable

from delegation.removal.purge.run import purge_table
from delegation.storage.memory import Faults, Killed
from polaris_common.errors import DelegationError
from tests.faults.crashes.scenarios import SCENARIOS, Point, Totals, world
from tests.faults.shared.running import Running
from tests.kit.lakes.lake import Lake
from tests.kit.printing import print_now


def play(lake: Lake, name: str, *, step: int = 1, note: Callable[[Totals], object] = lambda _totals: None) -> Totals:
    """Run every `step`th kill point of one scenario with the inline engine; `note` gets the totals after each."""
    totals = Totals()
    counted = Faults()
    purge_table(Point(lake, name, "counting").attempt(counted))
    for after in (False, True):
        for number in range(1, counted.calls + 1, step):
            where = f"{name}, {'after' if after else 'before'} call {number} ({counted.names[number - 1]})"
            point = Point(lake, name, where)
            try:
                purge_table(point.attempt(Faults(kill_at=number, after=after)))
            except Killed:
                pass
            else:
                totals.error(f"{where}: the purge was not killed")
            try:
                purge_table(point.attempt(Faults()))
            except DelegationError as error:
                totals.error(f"{where}: {error.code}: {error}")
            point.account(totals)
            note(totals)
    return totals


def _inline(print_line: Callable[[str], object]) -> Totals:
    lake, totals = world(), Totals()
    for name in SCENARIOS:
        running = Running(print_line)
        played = play(
            lake, name, note=lambda so_far, to=running.note, of=name: to(so_far.line(f"inline, {of}, so far"))
        )
        running.end()
        print_line(played.line(f"inline, {name}"))
        totals.add(played)
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a purge at every call and run it again.")
    parser.add_argument("--engine", choices=("inline", "spark"), help="one engine only")
    parser.add_argument("--every", action="store_true", help="every point of every scenario with Spark, too")
    options = parser.parse_args()
    every, lines = Totals(), []
    if options.engine != "spark":
        totals = _inline(print_now)
        lines.append(totals.line("inline"))
        every.add(totals)
    if options.engine != "inline":
        from tests.faults.crashes.spark_matrix import play_all

        totals = play_all(world(), step=1 if options.every else 5, print_line=print_now)
        lines.append(totals.line("spark"))
        every.add(totals)
    sys.stdout.write("".join(f"{line}\n" for line in (*every.problems, *lines, every.line("crash-matrix"))))
    return 0 if every.clean else 1


if __name__ == "__main__":
    sys.exit(main())
