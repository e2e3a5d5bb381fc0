"""`python -m infra.package`: one directory with the service and its dependencies, for Lambda and for Spark jobs.

Wheels are chosen for where the code will run, not for this machine, so no container is needed; a dependency without a
fitting wheel is an error. Needs pip and a package index.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Final

from infra.environment import ROOT

PYTHON_VERSION: Final = "3.13"
"""The newest Python of EMR Serverless' Spark 4 images, and a Lambda runtime: one package serves both."""
PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""What Amazon Linux 2023, under both, can load."""
LIMIT_BYTES: Final = 250 * 1024 * 1024
"""AWS Lambda quotas: the unzipped size of a deployment package."""


def main(arguments: list[str] | None = None) -> int:
    """Build the directory anew; the former one is replaced only when everything worked."""
    parser = argparse.ArgumentParser(prog="python -m infra.package", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "package", help="where to (default: %(default)s)"
    )
    output: Path = parser.parse_args(arguments).output
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        package = Path(scratch) / "package"
        subprocess.run([sys.executable, *pip_arguments(dependencies(), package)], check=True)
        add_sources(package)
        size = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
        if size > LIMIT_BYTES:
            sys.stderr.write(f"{size:,} bytes are more than Lambda takes ({LIMIT_BYTES:,})\n")
            return 1
        shutil.rmtree(output, ignore_errors=True)
        package.rename(output)
    sys.stdout.write(f"{output}: {size / 1024 / 1024:.0f} MB; deploy with -c delegation:package={output}\n")
    return 0


def dependencies(project: Path = ROOT / "pyproject.toml") -> list[str]:
    """What runs in the cloud: the project's own dependencies, none of its extras."""
    found: list[str] = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    return found


def pip_arguments(requirements: list[str], target: Path) -> list[str]:
    """The call of pip that fills `target` with wheels for the cloud's Python, pinned as everywhere else."""
    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    return [
        *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
        *("--target", str(target), "--only-binary", ":all:", "--implementation", "cp"),
        *("--python-version", PYTHON_VERSION, *platforms),
        *("--constraint", str(ROOT / "constraints.txt"), *requirements),
    ]


def add_sources(package: Path) -> None:
    """Put the service beside its dependencies, and leave out what no function loads."""
    shutil.copytree(
        ROOT / "functions" / "delegation", package / "delegation", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    shutil.rmtree(package / "bin", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
