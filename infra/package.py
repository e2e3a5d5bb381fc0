"""`python -m infra.package`: the service with its dependencies, in one directory for Lambda and one for Spark jobs.

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

NOT_DEPLOYED: Final = ("persistence", "tasks_on_persistence")
"""Packages of `delegation` that no Lambda function and no Spark job imports."""
PYTHON_VERSION: Final = "3.13"
"""The newest Python of EMR Serverless' Spark 4 images, and a Lambda runtime: both run the same."""
LAMBDA: Final = "lambda"
SPARK: Final = "spark"
"""The directories below the output."""
PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""What Amazon Linux 2023, under both, can load."""
LIMIT_BYTES: Final = 250 * 1024 * 1024
"""AWS Lambda quotas: the unzipped size of a deployment package."""


def main(arguments: list[str] | None = None) -> int:
    """Build both directories anew; former ones are replaced only when everything worked."""
    parser = argparse.ArgumentParser(prog="python -m infra.package", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "package", help="where to (default: %(default)s)"
    )
    output: Path = parser.parse_args(arguments).output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        built = Path(scratch) / "package"
        for part in (LAMBDA, SPARK):
            subprocess.run([sys.executable, *pip_arguments(dependencies(part), built / part)], check=True)
            add_sources(built / part)
        size = sum(file.stat().st_size for file in (built / LAMBDA).rglob("*") if file.is_file())
        if size > LIMIT_BYTES:
            sys.stderr.write(f"{size:,} bytes are more than Lambda takes ({LIMIT_BYTES:,})\n")
            return 1
        shutil.rmtree(output, ignore_errors=True)
        built.rename(output)
    sys.stdout.write(f"{output}: {size / 1024 / 1024:.0f} MB for Lambda; deploy with -c delegation:package={output}\n")
    return 0


def dependencies(part: str, project: Path = ROOT / "pyproject.toml") -> list[str]:
    """What runs in the cloud: the project's own dependencies, and for Spark jobs Arrow; Spark itself is there."""
    described = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    found: list[str] = list(described["dependencies"])
    if part == SPARK:
        found += [one for one in described["optional-dependencies"]["spark"] if not one.startswith("pyspark")]
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
    """Put the service beside its dependencies, without the packages and programs that nothing deployed uses."""
    shutil.copytree(
        ROOT / "functions" / "delegation", package / "delegation", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    for name in NOT_DEPLOYED:
        shutil.rmtree(package / "delegation" / name)
    shutil.rmtree(package / "bin", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
