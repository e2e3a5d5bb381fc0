"""The cost of imports at a cold start: CPU time of importing each handler, relative to `import boto3`.

    python tests/bench/bench_imports.py [--rounds 7] [--handlers authorizer api]

Both run in turn in new interpreters, so that a slow moment of the machine affects both. The first round is not counted,
because the first import of a module also writes its bytecode.
"""

import argparse
import os
import statistics
import subprocess
import sys

from infra.local.processes.programs import import_path

HANDLERS = (
    *("authorizer", "api", "dispatcher", "sweeper", "acquire", "heartbeat", "complete", "make_due"),
    *("start_job", "prepare", "run_inline"),
)
PEER = "boto3"


def cpu_seconds(module: str) -> float:
    """Return the CPU time, user and system, of importing a module in a new process."""
    code = f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": import_path(), "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def modules_of(module: str) -> int:
    """Return the number of our modules that the import loads."""
    code = f"import sys, {module}; print(sum(one.split('.')[0] == 'delegation' for one in sys.modules))"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": import_path(), "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return int(done.stdout)


def main() -> None:
    """Print a row for each handler."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--handlers", nargs="+", default=HANDLERS)
    given = parser.parse_args()
    sys.stdout.write(f"{'handler':12} {'our modules':>11} {'CPU ms':>7} {PEER + ' ms':>9} {'ratio':>6}  (medians)\n")
    for handler in given.handlers:
        module = f"delegation.handlers.{handler}"
        pairs = [(cpu_seconds(PEER), cpu_seconds(module)) for _ in range(given.rounds + 1)][1:]
        peer, ours = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
        ratio = statistics.median(own / other for other, own in pairs)
        sys.stdout.write(f"{handler:12} {modules_of(module):11} {ours:7.0f} {peer:9.0f} {ratio:6.2f}\n")


if __name__ == "__main__":
    main()
