"""`make sam-check`: samplconfig.toml with the SAM command itself, on freshly synthesized templates.

Every stack's template passes `sam validate --lint`, and SAM finds each function and its code without `sam build`. It
needs no account and no container engine. Exits with 1 if anything is wrong.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from infra.environment.context import default_properties
from infra.environment.functions import FUNCTIONS, deployed_functions
from infra.stacks.build import build
from tests.paths import ROOT

FILES = ("samplconfig.toml", "sam-environment.json", ".cfnlintrc")


def main() -> int:
    """Check in a folder of its own, because `cdk.out` may have templates that somebody wants to deploy."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-sam", help="where aws-sam-cli is installed")
    programs = parser.parse_args().environment.absolute() / "bin"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in FILES:
            shutil.copy(ROOT / file, folder)
        build({"delegation:package": "none"}, outdir=str(folder / "cdk.out")).app.synth()
        environments = [key for key in tomllib.loads((ROOT / FILES[0]).read_text(encoding="utf-8")) if key != "version"]
        wrong = [line for each in environments for line in validated(programs / "sam", folder, each)]
        wrong += found(programs / "python", folder)
    for line in wrong:
        sys.stdout.write(f"FAILED: {line}\n")
    return 1 if wrong else 0


def validated(sam: Path, folder: Path, environment: str) -> list[str]:
    """Run `sam validate --lint` in one environment of the file; return what it prints if it fails."""
    command = [str(sam), "validate", "--config-file", FILES[0], "--config-env", environment]
    done = run(command, folder)
    sys.stdout.write(f"sam validate --lint, {environment}: {'ok' if done.returncode == 0 else 'failed'}\n")
    return [] if done.returncode == 0 else [done.stdout + done.stderr]


def found(python: Path, folder: Path) -> list[str]:
    """Return a line for each function that `sam local invoke NAME` would not find, or not with its code."""
    template = folder / "cdk.out" / "PolarisDelegation-prod-Service.template.json"
    names = sorted(deployed_functions(default_properties()))
    done = run([str(python), str(Path(__file__).with_name("resolve.py")), str(template), *names], folder)
    if done.returncode != 0:
        return [done.stderr]
    resolved: dict[str, Any] = json.loads(done.stdout)
    right = [
        name
        for name in names
        if resolved.get(name) == {"handler": FUNCTIONS[name].handler, "runtime": "python3.13", "has_code": True}
    ]
    sys.stdout.write(
        f"sam local invoke finds {len(right)} of {len(names)} functions, and their code without sam build\n"
    )
    return [f"SAM finds {name} as {resolved.get(name)}" for name in names if name not in right]


def run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program of SAM's environment without this machine's AWS settings."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    own = {"AWS_DEFAULT_REGION": "eu-central-1", "SAM_CLI_TELEMETRY": "0", "AWS_CONFIG_FILE": os.devnull}
    return subprocess.run(command, cwd=folder, env={**kept, **own}, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    sys.exit(main())
