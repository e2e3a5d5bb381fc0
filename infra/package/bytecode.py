"""Bytecode for the cloud's Python, compiled beforehand; functions would compile at each cold start."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from infra.package.parts import PYTHON_VERSION

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
    if found := shutil.which(f"python{PYTHON_VERSION}"):
        yield found
    for path in sorted(Path.home().glob(f".pyenv/versions/{PYTHON_VERSION}.*/bin/python{PYTHON_VERSION}")):
        yield str(path)


def _is_of_the_cloud(python: str) -> bool:
    """Return whether a program is a final release of the cloud's Python: bytecode of another version is not loaded."""
    try:
        done = subprocess.run([python, "-c", _VERSION], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.split() == [PYTHON_VERSION, "final"]
