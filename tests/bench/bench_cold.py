"""The cost of imports at a cold start: CPU time of importing each handler of the built package, against boto3's.

    python -m infra.package --architecture x86_64 --output build/package-x86_64   # the processor of this machine
    python tests/bench/bench_cold.py --package build/package-x86_64 [--rounds 7] [--handlers authorizer api]

Both run in turn in new interpreters of the cloud's Python, which see nothing but the package, so that a slow moment of
the machine affects both. With `--package sources` the handlers run from the checkout. The first round is not counted.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from infra.environment.context import ROOT
from infra.environment.functions import FUNCTIONS, GATEWAY
from infra.local.processes.programs import import_path
from infra.package.bytecode import find_python
from infra.package.parts import ARCHIVES, DESCRIPTION, GOAL_BYTES, LAMBDA, PYTHON_VERSION, Processor

PEER = "boto3"
GOALS = {"api": 2.5, "authorizer": 1.5}
"""The greatest ratio to the import of boto3 that a cold start is meant to cost."""
SOURCES = Path("sources")


class Interpreter:
    """New interpreters that import from one place."""

    def __init__(self, package: Path) -> None:
        self.command = [sys.executable]
        self.path = import_path()
        if package != SOURCES:
            self.command = [usable_python(package), "-S", "-B"]
            self.path = str(package / LAMBDA)

    def run(self, code: str) -> float:
        """Return the number that the code prints."""
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": self.path, "AWS_DEFAULT_REGION": "us-east-1"}
        done = subprocess.run([*self.command, "-c", code], env=env, capture_output=True, text=True, check=True)
        return float(done.stdout)

    def cpu_seconds(self, module: str) -> float:
        """Return the CPU time, user and system, of importing a module in a new process."""
        return self.run(f"import time; t = time.process_time(); import {module}; print(time.process_time() - t)")

    def modules_of(self, module: str) -> int:
        """Return the number of our modules that the import loads."""
        return int(
            self.run(f"import sys, {module}; print(sum(one.split('.')[0] == 'delegation' for one in sys.modules))")
        )


def usable_python(package: Path) -> str:
    """Return an interpreter that loads the package; exits with what is missing."""
    described = package / DESCRIPTION
    if not described.is_file():
        sys.exit(f"{package} is no package: build it with `python -m infra.package --output {package}`")
    processor = Processor(json.loads(described.read_text(encoding="utf-8"))["architecture"])
    if platform.machine() not in {processor.value, processor.machine}:
        sys.exit(f"{package} is for {processor}, this machine is {platform.machine()}: build one with --architecture")
    python = find_python()
    if python is None:
        sys.exit(f"no Python {PYTHON_VERSION} was found, which the package is for")
    return python


def main() -> None:
    """Print the archives' sizes and a row for each handler, with the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, default=ROOT / "build" / "package", help="a folder, or `sources`")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--handlers", nargs="+", default=[*FUNCTIONS, GATEWAY.name])
    given = parser.parse_args()
    interpreter = Interpreter(given.package)
    for part, name in ARCHIVES.items() if given.package != SOURCES else ():
        megabytes = (given.package / name).stat().st_size / 1e6
        sys.stdout.write(f"{name}: {megabytes:.1f} MB (goal: at most {GOAL_BYTES[part] / 1e6:.0f})\n")
    columns = f"{'handler':12} {'our modules':>11} {'CPU ms':>7} {PEER + ' ms':>9} {'ratio':>6} {'goal':>6}"
    sys.stdout.write(f"{columns}  (medians)\n")
    for handler in given.handlers:
        module = f"delegation.handlers.{handler}"
        pairs = [(interpreter.cpu_seconds(PEER), interpreter.cpu_seconds(module)) for _ in range(given.rounds + 1)][1:]
        peer, ours = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
        ratio = statistics.median(own / other for other, own in pairs)
        row = f"{handler:12} {interpreter.modules_of(module):11} {ours:7.0f} {peer:9.0f} {ratio:6.2f}"
        sys.stdout.write(f"{row} {GOALS.get(handler, ''):>6}\n")


if __name__ == "__main__":
    main()
