"""The wheels of a package: chosen for the cloud's platform, checked against recorded hashes, and kept.

`python -m infra.package.wheels` records them again after a change of constraints.txt.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from infra.environment.context import ROOT
from infra.package.parts import LAMBDA, PYTHON_VERSION, SPARK, Processor

_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)((?: --hash=sha256:[0-9a-f]{64})+)$")
_HEADER: Final = (
    "# The wheels in the package for {part}, of all processors; written by `python -m infra.package.wheels`.\n"
)


class WheelUnusable(RuntimeError):
    """Wheels cannot be had, or are not those that were recorded."""


def recorded(part: str) -> Path:
    """Return the file with a package's pins and hashes, in the form that pip's `--require-hashes` takes."""
    return Path(__file__).with_name(f"wheels-{part}.txt")


def pins(lines: Iterable[str]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Yield name, version and the hashes of each line; raises WheelUnusable for one that is no pin with hashes."""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            pin = _PIN.match(line.strip())
            if pin is None:
                raise WheelUnusable(f"{line.strip()!r} is not a pin with hashes. Write the file again")
            yield pin[1], pin[2], frozenset(re.findall(r"[0-9a-f]{64}", pin[3]))


def requirements(project: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the requirements of both packages: the project's and those of its extra `service`.

    Spark jobs need no more: EMR has Spark, and jobs of RDDs use neither pandas nor Arrow.
    """
    described = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    extras: dict[str, list[str]] = described["optional-dependencies"]
    return [*described["dependencies"], *extras["service"]]


def selection(processor: Processor) -> list[str]:
    """Return pip's options that choose wheels for the cloud; a dependency without such a wheel is an error."""
    platforms = [part for platform in processor.platforms for part in ("--platform", platform)]
    return ["--only-binary", ":all:", "--implementation", "cp", "--python-version", PYTHON_VERSION, *platforms]


def download(part: str, processor: Processor, folder: Path) -> None:
    """Bring the recorded wheels of a package into a folder; asks the index only for those that it lacks."""
    if absent(part, folder):
        checked = ("--no-deps", "--require-hashes", "--requirement", str(recorded(part)))
        pip("download", "--dest", str(folder), *selection(processor), *checked)
    if missing := absent(part, folder):
        raise WheelUnusable(f"{folder} has no wheel with a recorded hash of {', '.join(missing)}")


def absent(part: str, folder: Path) -> list[str]:
    """Return the names of a package's pins of which a folder has no wheel with a recorded hash."""
    present = {digest(wheel) for wheel in folder.glob("*.whl")}
    with recorded(part).open(encoding="utf-8") as lines:
        return [name for name, _version, hashes in pins(lines) if present.isdisjoint(hashes)]


def install(part: str, processor: Processor, folder: Path, target: Path) -> None:
    """Fill a folder with a package's wheels, whose hashes pip checks again."""
    source = ("--no-index", "--find-links", str(folder), "--no-deps", "--require-hashes")
    unpack = ("--no-compile", "--target", str(target), *selection(processor))
    pip("install", *source, *unpack, "--requirement", str(recorded(part)))


def install_added(part: str, processor: Processor, added: list[str], target: Path) -> None:
    """Fill a folder with what an author's modules need; names that the package pins keep their versions."""
    if not added:
        return
    with recorded(part).open(encoding="utf-8") as lines, tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write("".join(f"{name}=={version}\n" for name, version, _hashes in pins(lines)))
        pinned.flush()
        constraints = ("--constraint", pinned.name, "--constraint", str(ROOT / "constraints.txt"))
        pip("install", "--no-compile", "--target", str(target), *selection(processor), *constraints, *added)


def pip(command: str, *arguments: str) -> None:
    """Run a command of pip; raises WheelUnusable, after pip has printed why."""
    line = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *arguments]
    if subprocess.run(line, check=False).returncode != 0:
        raise WheelUnusable(f"pip {command} failed; its message is above")


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def record(part: str, folders: Iterable[Path]) -> str:
    """Return the text of a package's pins, with the hash of each processor's wheel in the folders."""
    wheels: dict[tuple[str, str], set[str]] = {}
    for folder in folders:
        for wheel in folder.glob("*.whl"):
            name, version = wheel.name.split("-")[:2]
            wheels.setdefault((re.sub(r"[-_.]+", "-", name).lower(), version), set()).add(digest(wheel))
    lines = [
        f"{name}=={version}{''.join(f' --hash=sha256:{value}' for value in sorted(hashes))}\n"
        for (name, version), hashes in sorted(wheels.items())
    ]
    return _HEADER.format(part=part) + "".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Resolve both packages for every processor within constraints.txt, and record names, versions and hashes."""
    parser = argparse.ArgumentParser(prog="python -m infra.package.wheels", description=main.__doc__)
    parser.add_argument("--wheels", type=Path, default=ROOT / "build" / "wheels", help="folder of downloaded wheels")
    parser.add_argument("--offline", action="store_true", help="record the wheels in the folder, and download nothing")
    given = parser.parse_args(arguments)
    for part in (LAMBDA, SPARK):
        folders = [given.wheels / "recorded" / f"{part}-{processor}" for processor in Processor]
        for processor, folder in zip(Processor, folders, strict=True):
            if not given.offline:
                chosen = ("--constraint", str(ROOT / "constraints.txt"), *requirements())
                pip("download", "--dest", str(folder), *selection(processor), *chosen)
        recorded(part).write_text(record(part, folders), encoding="utf-8")
        sys.stdout.write(f"{recorded(part)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
