"""`make drill`: workers and the state machine together on one DynamoDB, killed at random; figures on the last line.

Exit status 0: nothing was violated; 1: something was, each violation on a line of its own; 2: this machine cannot.
"""

import argparse
import contextlib
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.errors import UnavailableError
from tests.drill.kills import Drill
from tests.drill.site import PROPERTIES, StateMachine, Store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60, help="for how long to kill")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--folder", type=Path, help="for logs, kept; else a temporary one")
    parser.add_argument("--dynamodb", metavar="URL", help="a running DynamoDB Local; else one is started")
    options = parser.parse_args()
    with contextlib.ExitStack() as cleanup:
        folder = options.folder or Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        # Every execution that fails is told of at length, and here they do.
        logging.basicConfig(filename=folder / "drill.log", format="%(asctime)s %(levelname)s %(name)s %(message)s")
        url = options.dynamodb
        if url is None:
            server = DynamoDbLocal(log=folder / "dynamodb.log")
            try:
                server.start()
            except UnavailableError as reason:
                sys.stderr.write(f"{reason}\n")
                return 2
            cleanup.callback(server.stop)
            url = server.url
        store = Store(url, folder, PROPERTIES).create_tables()
        machine = cleanup.enter_context(StateMachine(store))
        drill = Drill(store, machine, random.Random(options.seed), tasks=options.tasks, workers=options.workers)
        with drill:
            drill.kill_for(options.seconds)
            settling = time.monotonic()
            drill.settle()
            settled = time.monotonic() - settling
        findings = drill.findings()
    for violation in findings.violations:
        sys.stdout.write(f"{violation}\n")
    told = f"seed {options.seed}, {options.seconds:g} s: {drill.kills}, settled after {settled:.0f} s; {findings}"
    sys.stdout.write(f"{told}\n")
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
