"""A process that runs maintenance again and again, with a jumping wall clock, and says what each run did.

Its one JSON argument is a Duty; it runs until it is killed.
"""

import json
import os
import random
import sys
import time

from pydantic import BaseModel

from polaris_persistence.errors import BackendUnavailable, CommitOutcomeUnknown, TaskHeld, TaskTakenOver
from polaris_persistence.maintenance.run import SweepPolicy
from tests.persistence.linearizability.worker import process_of


class Duty(BaseModel):
    """Where maintenance runs. `grace` is in seconds, and `jump` is how many of them its wall clock may be off."""

    url: str
    objects: str
    references: str
    number: int
    grace: float
    jump: float

    def policy(self) -> SweepPolicy:
        """Return a policy with which a killed run is continued soon, from a recent state."""
        return SweepPolicy(grace=self.grace, page=200, chunk=500, checkpoint_after=0.5, lost_after=3.0)


def main(argument: str) -> None:
    duty = Duty.model_validate_json(argument)
    draw = random.Random(duty.number)
    process = process_of(duty.url, duty.objects, duty.references, draw, lossy=True, jump=duty.jump)
    maintenance = process.maintenance(duty.policy())
    while True:
        try:
            report = maintenance.run()
        except (TaskHeld, TaskTakenOver, CommitOutcomeUnknown, BackendUnavailable) as error:
            found: dict[str, object] = {"failed": type(error).__name__}
        else:
            found = {"deleted": report.deleted, "young": report.young, "refused": report.refused}
        line = json.dumps({"what": "maintained", "at": time.monotonic(), **found}) + "\n"
        os.write(sys.stdout.fileno(), line.encode())
        time.sleep(0.3)


if __name__ == "__main__":
    main(sys.argv[1])
