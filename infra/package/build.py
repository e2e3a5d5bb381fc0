"""`python -m infra.package` builds the service with its dependencies for Lambda (a zip) and for Spark jobs (a tgz).

pip chooses wheels for the cloud's platform, not for this machine, so no container is needed, and checks their recorded
hashes. The same inputs give the same bytes. It needs pip, once a package index, and Python 3.13 to compile the modules.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from delegation.upkeep.policy_file import LONGEST_FILE, PACKAGED, PolicyFile, PolicyFileInvalid
from infra.environment.context import ROOT
from infra.package import parts, trees, wheels

_READS_SOURCE: Final = re.compile(rb"\bgetsource(lines|file)?\(|\bfindsource\(")
"""The functions of `inspect` that need a module's source."""
_READ_OTHERS: Final = frozenset({"pydantic", "wrapt"})
"""Packages that read the source of their callers' classes and functions, and not their own."""
_VERSION: Final = "import sys; i = sys.version_info; print(f'{i.major}.{i.minor}', i.releaselevel)"


class NotCompiled(RuntimeError):
    """A module of the package is no Python of the cloud's version."""


def find_python(named: str | None = None) -> str | None:
    """Return an interpreter of the cloud's version: the named one, this one, or one that is installed; else None."""
    return next((path for path in ([named] if named else _installed()) if _is_of_the_cloud(path)), None)


def compile_tree(tree: Path, python: str) -> None:
    """Write bytecode that is never compared with its source next to every module; raises NotCompiled.

    PEP 552, "unchecked hash-based pycs": neither times nor the order of sets (PYTHONHASHSEED) get into the files.
    """
    mode = ("--invalidation-mode", "unchecked-hash", "-s", str(tree))
    done = subprocess.run(
        [python, "-m", "compileall", "-q", *mode, str(tree)],
        env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"},
        cwd=tree.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise NotCompiled(f"{python} cannot compile the package: {(done.stdout + done.stderr).strip()}")


def remove_sources(tree: Path, kept: Collection[str]) -> None:
    """Leave of compiled dependencies the bytecode alone, which Python loads from the place of a module's source.

    A top-level package or module of `kept` keeps its sources, and so does one that reads its own source.
    """
    for top in sorted(tree.iterdir()):
        modules = sorted(top.rglob("*.py")) if top.is_dir() else [top] * (top.suffix == ".py")
        reads_source = any(_READS_SOURCE.search(module.read_bytes()) for module in modules)
        if top.stem in kept or (reads_source and top.stem not in _READ_OTHERS):
            continue
        for module in modules:
            for compiled in (module.parent / "__pycache__").glob(f"{module.stem}.cpython-*.pyc"):
                compiled.rename(module.with_suffix(".pyc"))
                module.unlink()


def _installed() -> Iterator[str]:
    yield sys.executable
    if python := shutil.which(f"python{parts.PYTHON_VERSION}"):
        yield python
    for path in sorted(Path.home().glob(f".pyenv/versions/{parts.PYTHON_VERSION}.*/bin/python{parts.PYTHON_VERSION}")):
        yield str(path)


def _is_of_the_cloud(python: str) -> bool:
    """Return whether a program is a final release of the cloud's Python: bytecode of another version is not loaded."""
    try:
        done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.split() == [parts.PYTHON_VERSION, "final"]


_WRITERS: Final = {parts.LAMBDA: trees.write_zip, parts.SPARK: trees.write_tar}
_SOURCES_ALONE: Final = (
    f"No Python {parts.PYTHON_VERSION} was found, so the packages have no bytecode. Every cold start compiles the "
    f"sources and takes three times as long. Install Python {parts.PYTHON_VERSION}, or name one with --python.\n"
)


@dataclass(frozen=True, slots=True)
class PackageOrder:
    """What to build; `python` compiles the modules, None ships sources alone.

    `policies` is the text of a policy file.
    """

    processor: parts.Processor
    wheels: Path
    python: str | None
    modules: tuple[Path, ...] = ()
    requirements: tuple[str, ...] = ()
    services: frozenset[str] = trees.AWS_SERVICES
    policies: str | None = None


def main(arguments: list[str] | None = None) -> int:
    """Build both packages and replace the former ones, which stay if a step fails."""
    parser = _parser()
    given = parser.parse_args(arguments)
    for module in given.module:
        if (reason := trees.unusable(module)) is not None:
            parser.error(f"--module {module}: {reason}")
    try:
        policies = None if given.policy_file is None else policies_in(given.policy_file)
    except PolicyFileInvalid as error:
        parser.error(f"--policy-file {given.policy_file}: {error}")
    python = find_python(given.python)
    if given.python and python is None:
        parser.error(f"--python {given.python} is not a released Python {parts.PYTHON_VERSION}")
    if python is None:
        sys.stderr.write(_SOURCES_ALONE)
    order = PackageOrder(
        given.architecture,
        given.wheels.absolute() / given.architecture,
        python,
        tuple(given.module),
        tuple(given.requirement),
        trees.AWS_SERVICES | {*given.aws_service},
        policies,
    )
    output: Path = given.output.absolute()
    output.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
            built = Path(scratch) / "package"
            build(order, built)
            shutil.rmtree(output, ignore_errors=True)
            built.rename(output)
    except (wheels.WheelUnusable, NotCompiled, PackageTooLarge, FileExistsError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    too_large = publish(output, given.archives.absolute(), order.processor)
    if too_large and not (order.modules or order.requirements or order.services > trees.AWS_SERVICES):
        sys.stderr.write(f"{'; '.join(too_large)}. Leave out files that nothing imports (infra/package/trees.py)\n")
        return 1
    sys.stdout.write(f"Deploy with -c delegation:package={output} -c delegation:architecture={order.processor}\n")
    return 0


class PackageTooLarge(ValueError):
    """A package exceeds a limit of AWS."""


def build(order: PackageOrder, output: Path) -> None:
    """Write both packages, their archives and a description of them.

    Raises WheelUnusable, NotCompiled, PackageTooLarge, and FileExistsError for an author's module whose name is taken.
    """
    for part, write in _WRITERS.items():
        tree = output / part
        tree.mkdir(parents=True)
        wheels.download(part, order.processor, order.wheels)
        wheels.install(part, order.processor, order.wheels, tree)
        trees.remove_unused(tree, order.services)
        with tempfile.TemporaryDirectory(dir=output) as added:
            wheels.install_added(part, order.processor, list(order.requirements), Path(added))
            trees.merge(Path(added), tree)
        trees.remove_notes(tree)
        trees.remove_symbols(tree)
        trees.add_sources(tree)
        trees.add_modules(tree, order.modules)
        trees.add_licences(tree)
        if order.python is not None:
            compile_tree(tree, order.python)
        if order.policies is not None:
            (tree / PACKAGED).write_text(order.policies, encoding="utf-8")
        if part == parts.LAMBDA:
            if order.python is not None:
                remove_sources(tree, {*parts.ROOTS, *(module.resolve().stem for module in order.modules)})
            size = sum(file.stat().st_size for _, file in trees.files_below(tree))
            if size > parts.LIMIT_BYTES:
                limit = f"Lambda accepts at most {parts.LIMIT_BYTES:,}"
                raise PackageTooLarge(f"the Lambda package has {size:,} bytes; {limit}")
        write(tree, output / parts.ARCHIVES[part])
    described = {"architecture": order.processor, "python": parts.PYTHON_VERSION, "compiled": order.python is not None}
    (output / parts.DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def policies_in(path: Path) -> str:
    """Return the text of a policy file all of whose policies have an effect; raises PolicyFileInvalid."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyFileInvalid(f"the policy file cannot be read: {error}") from error
    PolicyFile.parse(text).check()
    return text


def publish(output: Path, archives: Path, processor: parts.Processor) -> list[str]:
    """Put the archives into a folder under names with the processor, and print their sizes and hashes.

    Returns a sentence for each that is larger than its goal; what an author adds may take more.
    """
    archives.mkdir(parents=True, exist_ok=True)
    too_large = []
    for part, name in parts.ARCHIVES.items():
        target = archives / f"delegation-{name.replace('.', f'-{processor}.', 1)}"
        target.unlink(missing_ok=True)
        os.link(output / name, target)
        size = target.stat().st_size
        goal = f"{size / 1e6:.1f} MB (goal: at most {parts.GOAL_BYTES[part] / 1e6:.0f})"
        sys.stdout.write(f"{target}: {goal}, SHA-256 {wheels.digest(target)}\n")
        if size > parts.GOAL_BYTES[part]:
            too_large.append(f"{name} has {goal}")
    return too_large


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.package", description=__doc__)
    for option, folder, text in (
        ("--output", "build/package", ""),
        ("--archives", "dist", "for the archives "),
        ("--wheels", "build/wheels", "keeps downloads "),
    ):
        described = f"{text}(default: %(default)s)"
        parser.add_argument(option, default=ROOT / folder, help=described, type=Path, metavar="FOLDER")
    parser.add_argument(
        "--architecture",
        type=parts.Processor,
        choices=list(parts.Processor),
        default=parts.Processor.ARM64,
        help="the processor, as in delegation:architecture (default: %(default)s)",
    )
    parser.add_argument("--python", metavar="PATH", help=f"a Python {parts.PYTHON_VERSION} that compiles the modules")
    repeated = partial(parser.add_argument, action="append", default=[])
    repeated(
        "--module",
        type=Path,
        metavar="PATH",
        help="a Python package's directory or a module's file to add to both packages, for the behaviors that "
        "delegation:behaviors names; may be repeated",
    )
    needed = "a pip requirement of an added module, such as acme-client==2.1; may be repeated"
    repeated("--requirement", metavar="REQUIREMENT", help=needed)
    called = "an AWS service that an added module calls, by boto3's name, such as glue; may be repeated"
    repeated("--aws-service", metavar="NAME", help=called)
    policies = "the policy file, for catalogs without an API for policies (docs/upkeep.md)"
    parser.add_argument("--policy-file", type=Path, metavar="FILE", help=policies)
    return parser
