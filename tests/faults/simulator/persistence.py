"""The simulator with its tasks in the NoSQL persistence (`make simulate STORE=persistence`)."""

import sys
from dataclasses import replace
from typing import Final

from tests.faults.simulator import simulate
from tests.faults.simulator.stores import PERSISTENCE


class CommittedTasksUnderFaults(simulate.TasksUnderFaults):
    store = PERSISTENCE


EXPLORER: Final = replace(
    simulate.EXPLORER, module="tests.faults.simulator.persistence", story=CommittedTasksUnderFaults
)

if __name__ == "__main__":
    sys.exit(EXPLORER.main(sys.argv[1:]))
