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
from tests.faults.crashes.kills import KillPoint
from tests.faults.crashes.scenarios import SCENARIOS, Point, world
from tests.kit.explorer import Tally, play_all
from tests.kit.lakes.lake import Lake
from tests.kit.printing import print_now


def play(lake: Lake, name: str, *, step: int = 1, print_line: Callable[[str], object] = print_now) -> Tally:
    """Run every `step`th kill point of one scenario with the inline engine."""
    counted = Faults()
    purge_table(Point(lake, name).attempt(counted))
    calls = [(number, counted.names[number - 1]) for number in range(1, counted.calls + 1, step)]

    def killed(at: KillPoint) -> tuple[str, list[str]]:
        point, wrong, number = Point(lake, name), [], at.call[0]
        try:
            purge_table(point.attempt(Faults(kill_at=number, after=at.after)))
        except Killed:
            pass
        else:
            wrong.append("the purge was not killed")
        try:
            purge_table(point.attempt(Faults()))
        except DelegationError as error:
            wrong.append(f"the next attempt raised {error.code}: {error}")
        return at.when, [*wrong, *(f"{one} is gone" for one in point.harmed()), *point.wrong_at_end()]

    points = [KillPoint(call, after) for after in (False, True) for call in calls]
    return play_all(f"inline, {name}", points, killed, print_line)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a purge at every call and run it again.")
    parser.add_argument("--engine", choices=("inline", "spark"), help="one engine only")
    parser.add_argument("--every", action="store_true", help="every point of every scenario with Spark, too")
    options = parser.parse_args()
    lake, tallies = world(), list[Tally]()
    if options.engine != "spark":
        tallies += [play(lake, name) for name in SCENARIOS]
    if options.engine != "inline":
        from tests.faults.crashes.spark_matrix import play_scenarios

        tallies += play_scenarios(lake, step=1 if options.every else 5)
    points, wrong = sum(one.ends.total() for one in tallies), sum(len(one.wrong) for one in tallies)
    print_now(f"crash-matrix: {points} kill points, {wrong} wrong")
    return 0 if points and not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
