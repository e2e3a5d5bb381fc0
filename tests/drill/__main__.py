"""`make drill`: workers and the state machine on one DynamoDB, killed at random; totals on the last line.

Exit status 0: no violations; 1: violations, one line each; 2: DynamoDB Local cannot run on this machine.
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
    parser.add_argument("--seconds", type=float, default=60, help="how long to kill processes")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--store", choices=["table", "persistence"], default="table", help="where the tasks are")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--folder", type=Path, help="a folder for logs that is kept; a temporary one by default")
    parser.add_argument("--dynamodb", metavar="URL", help="a running DynamoDB Local; one is started by default")
    options = parser.parse_args()
    with contextlib.ExitStack() as cleanup:
        folder = options.folder or Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        # moto logs every failed execution at length, and here many fail.
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
        store = Store(url, folder, PROPERTIES, kind=options.store).create_tables()
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
    totals = f"seed {options.seed}, {options.seconds:g} s: {drill.kills}, settled after {settled:.0f} s; {findings}"
    sys.stdout.write(f"{totals}\n")
    return 1 if findings.violations else 0


if __name__ == "__main__":
    sys.exit(main())
