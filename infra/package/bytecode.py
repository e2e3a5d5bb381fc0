"""Bytecode for the cloud's Python, compiled beforehand; functions would compile at each cold start."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra.package.parts import PYTHON_VERSION

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
