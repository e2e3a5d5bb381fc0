"""The cost of imports at a cold start: CPU time of importing each handler of the built package, against boto3's.

    make package ARGS="--architecture x86_64 --output build/package-x86_64"   # on arm64: make package
    make bench BENCH=cold ARGS="[--package FOLDER] [--rounds 7] [--handlers authorizer api]"

Without `--package` the one for this machine's processor is measured: build/package, or build/package-ARCHITECTURE.
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
from infra.environment.functions import EVERY_FUNCTION
from infra.local.processes.programs import import_path
from infra.package.build import find_python
from infra.package.build import main as build
from infra.package.parts import ARCHIVES, DESCRIPTION, GOAL_BYTES, LAMBDA, PYTHON_VERSION, Processor

PEER = "boto3"
BUDGETS = {"api": 2.2, "authorizer": 1.5, "run_inline": 3.2}
"""The greatest ratio to the import of boto3; the goals of `api` and `run_inline` are 2.0 and 3.0.

Runs of one commit differ by up to 0.15, so that a budget at the goal fails without a cause."""
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


def this_processor() -> Processor:
    """Return this machine's processor by Lambda's name; exits on a machine for which there are no packages."""
    for processor in Processor:
        if platform.machine() in {processor.value, processor.machine}:
            return processor
    sys.exit(f"this machine is {platform.machine()}; packages are for {' and '.join(Processor)}")


def processor_of(package: Path) -> Processor | None:
    """Return the processor that a package is for, None without a package in the folder."""
    described = package / DESCRIPTION
    if not described.is_file():
        return None
    return Processor(json.loads(described.read_text(encoding="utf-8"))["architecture"])


def command_for(processor: Processor) -> str:
    """Return the command that makes the package which is found without `--package`."""
    return f'make package ARGS="--architecture {processor} --output build/package-{processor}"'


def package_of_this_machine(folder: Path) -> Path:
    """Return the package in `folder` that this machine can import; exits with the command that makes one."""
    wanted = this_processor()
    for package in (folder / "package", folder / f"package-{wanted}"):
        if processor_of(package) is wanted:
            return package
    sys.exit(f"{folder} has no package for {wanted}, this machine's processor: `{command_for(wanted)}` makes one")


def usable_python(package: Path) -> str:
    """Return an interpreter that loads the package; exits with what is missing."""
    wanted = this_processor()
    if processor_of(package) is not wanted:
        sys.exit(f"{package} is no package for {wanted}, this machine's processor: `{command_for(wanted)}` makes one")
    python = find_python()
    if python is None:
        sys.exit(f"no Python {PYTHON_VERSION} was found, which the package is for")
    return python


def built() -> Path:
    """Build the package for this machine and return its folder."""
    folder = ROOT / "build" / f"package-{this_processor()}"
    if status := build(
        ["--architecture", this_processor(), "--output", str(folder), "--archives", f"{folder}-archives"]
    ):
        sys.exit(status)
    return folder


def main() -> int:
    """Print the archives' sizes and a row for each handler; return 1 if one is above its budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, help="a folder, or `sources`; by default this machine's package")
    parser.add_argument("--build", action="store_true", help="build this machine's package first")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--handlers", nargs="+", choices=EVERY_FUNCTION, default=[*EVERY_FUNCTION])
    given = parser.parse_args()
    package = built() if given.build else given.package or package_of_this_machine(ROOT / "build")
    interpreter = Interpreter(package)
    for part, name in ARCHIVES.items() if package != SOURCES else ():
        megabytes = (package / name).stat().st_size / 1e6
        sys.stdout.write(f"{name}: {megabytes:.1f} MB (goal: at most {GOAL_BYTES[part] / 1e6:.0f})\n")
    columns = f"{'handler':12} {'our modules':>11} {'CPU ms':>7} {PEER + ' ms':>9} {'ratio':>6} {'budget':>6}"
    sys.stdout.write(f"{columns}  (medians)\n")
    above = []
    for handler in given.handlers:
        module = EVERY_FUNCTION[handler].module
        pairs = [(interpreter.cpu_seconds(PEER), interpreter.cpu_seconds(module)) for _ in range(given.rounds + 1)][1:]
        peer, ours = (statistics.median(column) * 1000 for column in zip(*pairs, strict=True))
        ratio = statistics.median(own / other for other, own in pairs)
        row = f"{handler:12} {interpreter.modules_of(module):11} {ours:7.0f} {peer:9.0f} {ratio:6.2f}"
        sys.stdout.write(f"{row} {BUDGETS.get(handler, ''):>6}\n")
        if ratio > BUDGETS.get(handler, ratio):
            above.append(handler)
    if above:
        sys.stdout.write(f"above their budgets: {', '.join(above)}\n")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
