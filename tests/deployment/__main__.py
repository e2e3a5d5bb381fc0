"""`make deployment-check`: docs/deployment.md followed literally, up to `cdk synth` and `cdk diff --template`.

    python -m tests.deployment [--wheels build/wheels]

Reads the commands and settings from the page and runs them in a temporary copy of the checkout, without an AWS account.
What needs one is named with its options checked. Prints a line for each step; exits with 1 if one is not as the page
says.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.deployment.follow import NotAsThePageSays, PastingShell, Walk, copy_checkout
from tests.deployment.options import WrongCommand, require_options
from tests.deployment.page import PAGE, UnknownCommand, commands, path, steps
from tests.paths import ROOT


def main() -> int:
    """Follow the page; return 1 if a step fails, or the page names a command that nobody has classified."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    wheels = Path(os.environ.get("DELEGATION_WHEELS", ROOT / "build" / "wheels"))
    parser.add_argument("--wheels", type=Path, default=wheels, help="folder of downloaded wheels (%(default)s)")
    kept: Path = parser.parse_args().wheels.absolute()
    began, page = time.monotonic(), PAGE.read_text(encoding="utf-8")
    try:
        for command in commands(page):
            _ = command.need
            require_options(command.text, whole=command.pasted)
        with tempfile.TemporaryDirectory(prefix="deployment-") as name:
            checkout = Path(name) / "checkout"
            copy_checkout(checkout)
            kept.mkdir(parents=True, exist_ok=True)
            (checkout / "build").mkdir()
            (checkout / "build" / "wheels").symlink_to(kept)
            Walk(PastingShell(checkout), report).take(steps(path(page)))
    except (NotAsThePageSays, UnknownCommand, WrongCommand, subprocess.CalledProcessError) as error:
        sys.stdout.write(f"FAILED: {error}\n")
        return 1
    sys.stdout.write(f"The page leads to synthesis and comparison; {time.monotonic() - began:.0f} s\n")
    return 0


def report(kind: str, seconds: float, step: str, found: str) -> None:
    """Print a step as one line."""
    taken = f"{seconds:6.1f} s" if seconds else " " * 8
    sys.stdout.write(f"{kind:8}{taken}  {step[:110]}: {found}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
