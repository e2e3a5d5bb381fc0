"""`python -m tests.mutants`: makes each listed edit in a copy of the repository and runs the tests that must notice it.

Exit status 0 when every mutant dies, 1 when one survives, 2 when an edit no longer applies or its tests fail unchanged.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.kit.printing import print_now
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import Mutant
from tests.paths import ROOT

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "cdk.out", "build", "node_modules")


def run(mutants: Sequence[Mutant], root: Path) -> int:
    """Run mutants of the code in a folder, which stays as it is, and print what became of each."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(root, copy, ignore=LEFT_OUT)
        for mutant in mutants:
            if (copy / mutant.path).read_text(encoding="utf-8").count(mutant.before) != 1:
                print_now(f"NO PLACE  {mutant.name}: {mutant.path} has not exactly one {mutant.before!r}")
                return 2
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        if not passes(copy, tests):
            print_now("FAILED    the tests of the mutants, before any edit")
            return 2
        survivors = [mutant.name for mutant in mutants if not dies(mutant, copy)]
    print_now(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants died")
    return 1 if survivors else 0


def dies(mutant: Mutant, copy: Path) -> bool:
    """Return whether a test of the mutant fails on a copy with its edit; the copy is restored."""
    path = copy / mutant.path
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace(mutant.before, mutant.after), encoding="utf-8")
    survived = passes(copy, mutant.tests)
    path.write_text(source, encoding="utf-8")
    print_now(f"{'SURVIVED ' if survived else 'died     '} {mutant.name}")
    return not survived


def passes(copy: Path, tests: Sequence[str]) -> bool:
    """Return whether pytest passes in a copy; bytecode is not written, for an edit may keep a file's size and time."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not dynamodb_local", "-p", "no:cacheprovider", *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy / 'functions'}{os.pathsep}{copy}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise RuntimeError(f"pytest could not run {' '.join(tests)}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def main() -> int:
    """Run the mutants whose names contain a text, all without one."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="part of the names of the mutants to run")
    chosen = [mutant for mutant in MUTANTS if parser.parse_args().text in mutant.name]
    return run(chosen, ROOT)


if __name__ == "__main__":
    sys.exit(main())
