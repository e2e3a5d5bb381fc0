"""`make chaos`: the local stack under load, with kills, throttling, an outage, a pause and a deployment; totals last.

Exit status 0: no finding, or with --planted every planted fault was caught and nothing else; 1: findings, one line
each; 2: DynamoDB Local cannot run on this machine; 130: stopped by Ctrl-C or SIGTERM. The same seed and minutes give
the same tables and the same plan.
"""

import argparse
import contextlib
import logging
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from infra.local.errors import CannotStartError, UnavailableError
from tests.chaos.findings import Finding, examine
from tests.chaos.load import FEWEST_TABLES, load, tables_for
from tests.chaos.plan import planned
from tests.chaos.plants import PLANTS
from tests.chaos.run import Run
from tests.chaos.site import WholeSystem
from tests.chaos.totals import totals
from tests.chaos.verdict import verdict


class Printed:
    """Prints lines with the seconds since the beginning, whole lines from any thread."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            sys.stdout.write(f"{time.monotonic() - self._began:7.1f} s  {text}\n")
            sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="how long faults happen; at least 2")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--tables", type=int, help="200 by default, fewer in runs of less than ten minutes")
    parser.add_argument("--workers", type=int, default=1, help="`delegation worker` processes beside the functions")
    parser.add_argument(
        "--planted", action="store_true", help="break two safeguards of the functions; they must be found"
    )
    parser.add_argument("--folder", type=Path, help="a folder for logs that is kept; a temporary one by default")
    options = parser.parse_args()
    if options.minutes < 2:
        parser.error("--minutes must be at least 2: a pause takes that long to reach every process")
    if options.tables is not None and options.tables < FEWEST_TABLES:
        parser.error(f"--tables must be at least {FEWEST_TABLES}: a run has two tables of each kind")
    # Ctrl-C and SIGTERM end every part.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.ExitStack() as cleanup:
        folder = options.folder or Path(cleanup.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        logging.basicConfig(filename=folder / "chaos.log", format="%(asctime)s %(levelname)s %(name)s %(message)s")
        logging.getLogger("chaos").setLevel(logging.INFO)
        try:
            return _run(options, folder, Printed(), cleanup)
        except UnavailableError as reason:
            sys.stderr.write(f"{reason}\n")
            return 2
        except CannotStartError as reason:
            sys.stderr.write(f"{reason}\nRead the logs in {folder}.\n")
            return 1
        except KeyboardInterrupt:
            sys.stderr.write("Stopped.\n")
            return 130


def _run(options: argparse.Namespace, folder: Path, say: Printed, cleanup: contextlib.ExitStack) -> int:
    tables = options.tables or tables_for(options.minutes)
    plants = tuple(PLANTS) if options.planted else ()
    say(f"seed {options.seed}, {options.minutes:g} min, {tables} tables; planted: {', '.join(plants) or 'nothing'}")
    site = cleanup.enter_context(WholeSystem(folder.resolve(), options.seed, workers=options.workers, planted=plants))
    run = Run(site, load(options.seed, options.minutes, tables), options.seed, say)
    cleanup.callback(run.callers.close)
    run.prepare()
    run.warm_up()
    faults = run.go(planned(options.seed, options.minutes), options.minutes * 60)
    say("the faults are over; waiting for the tasks to end")
    run.settle()
    say(f"settled after {run.settled_seconds:.0f} s")
    observed = run.observed(faults)
    findings = examine(observed)
    throttled = {"of S3": site.s3.throttled, "of DynamoDB": site.dynamodb.throttled}
    status = _report(findings, plants)
    for line in totals(observed, kills=faults.kills, throttled=throttled):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(findings)} findings; seed {options.seed}, {options.minutes:g} min, {tables} tables\n")
    return status


def _report(findings: list[Finding], plants: tuple[str, ...]) -> int:
    """Print the findings, of planted faults only what caught them, and return the exit status."""
    lines, caught = verdict(plants, findings) if plants else ([f"FOUND {each}" for each in findings], not findings)
    for line in lines:
        sys.stdout.write(f"{line}\n")
    return 0 if caught else 1


if __name__ == "__main__":
    sys.exit(main())
