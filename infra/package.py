"""`python -m infra.package` builds two packages of the service with its dependencies: for Lambda and for Spark jobs.

pip chooses wheels for the cloud's platform, not for this machine, so no container is needed; a dependency without such
a wheel is an error. It needs pip and a package index.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from infra.environment import ROOT

NOT_DEPLOYED: Final = ("persistence", "tasks_on_persistence")
"""Packages of `delegation` that no Lambda function and no Spark job imports."""
PYTHON_VERSION: Final = "3.13"
"""The newest Python that EMR Serverless' Spark 4 images have; Lambda runs the same version."""
LAMBDA: Final = "lambda"
SPARK: Final = "spark"
"""The names of the two packages, which are directories below the output."""
PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""The platforms whose wheels Amazon Linux 2023 loads; both services run on it."""
LIMIT_BYTES: Final = 250 * 1024 * 1024
"""The largest unzipped deployment package (AWS Lambda developer guide, "Lambda quotas")."""


def main(arguments: list[str] | None = None) -> int:
    """Build both packages and replace the former ones, which stay if a step fails."""
    parser = argparse.ArgumentParser(prog="python -m infra.package", description=__doc__)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "build" / "package", help="directory to write to (default: %(default)s)"
    )
    parser.add_argument(
        "--module",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a Python package's directory or a module's file to add to both packages, for the behaviors that "
        "delegation:behaviors names; may be repeated",
    )
    parser.add_argument(
        "--requirement",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="what an added module needs, for pip: acme-client==2.1; may be repeated",
    )
    given = parser.parse_args(arguments)
    output: Path = given.output.absolute()
    for module in given.module:
        if (reason := unusable(module)) is not None:
            parser.error(f"--module {module}: {reason}")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        built = Path(scratch) / "package"
        for part in (LAMBDA, SPARK):
            requirements = [*dependencies(part), *given.requirement]
            subprocess.run([sys.executable, *pip_arguments(requirements, built / part)], check=True)
            add_sources(built / part)
            add_modules(built / part, given.module)
        size = sum(file.stat().st_size for file in (built / LAMBDA).rglob("*") if file.is_file())
        if size > LIMIT_BYTES:
            sys.stderr.write(f"the Lambda package has {size:,} bytes; Lambda accepts at most {LIMIT_BYTES:,}\n")
            return 1
        shutil.rmtree(output, ignore_errors=True)
        built.rename(output)
    sys.stdout.write(f"{output}: {size / 1024 / 1024:.0f} MB for Lambda; deploy with -c delegation:package={output}\n")
    return 0


def dependencies(part: str, project: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return a package's requirements: the project's and those of its extra `service`.

    Spark jobs also need pandas and Arrow; EMR has Spark.
    """
    described = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = described["optional-dependencies"]
    found: list[str] = [*described["dependencies"], *extras["service"]]
    if part == SPARK:
        found += [one for one in extras["spark"] if not one.startswith("pyspark")]
    return found


def pip_arguments(requirements: list[str], target: Path) -> list[str]:
    """Return the arguments for pip to fill `target` with wheels for the cloud, pinned by constraints.txt."""
    platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
    return [
        *("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"),
        *("--target", str(target), "--only-binary", ":all:", "--implementation", "cp"),
        *("--python-version", PYTHON_VERSION, *platforms),
        *("--constraint", str(ROOT / "constraints.txt"), *requirements),
    ]


def add_sources(package: Path) -> None:
    """Copy the service's sources next to its dependencies, without NOT_DEPLOYED; remove the dependencies' programs."""
    shutil.copytree(
        ROOT / "functions" / "delegation", package / "delegation", ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    for name in NOT_DEPLOYED:
        shutil.rmtree(package / "delegation" / name)
    shutil.rmtree(package / "bin", ignore_errors=True)


def unusable(module: Path) -> str | None:
    """Return why a path cannot be added as a module, None if it can."""
    if module.is_dir():
        if not (module / "__init__.py").is_file():
            return "is a directory without __init__.py; name the package itself"
    elif not module.is_file() or module.suffix != ".py":
        return "is neither a package's directory nor a .py file"
    name = module.resolve().stem
    return "would replace the service's own package" if name == "delegation" else None


def add_modules(package: Path, modules: Iterable[Path]) -> None:
    """Copy an author's packages and modules next to the service's sources; FileExistsError for a name that is taken."""
    for module in (path.resolve() for path in modules):
        target = package / module.name
        if target.exists():
            raise FileExistsError(f"{module.name} is already in the package: a dependency has this name")
        if module.is_dir():
            shutil.copytree(module, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        else:
            shutil.copyfile(module, target)


if __name__ == "__main__":
    sys.exit(main())
