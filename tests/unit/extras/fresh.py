"""`python -m tests.unit.extras.fresh`: install the extra `client` into a new environment, and show what that does.

It prints the distributions, their size, the time of the import and what the README's examples print; exit status 1 if
an expectation does not hold. It needs a package index.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.unit.extras.readme import examples, serving

ROOT: Final = Path(__file__).resolve().parents[3]
UV: Final = Path(sys.executable).with_name("uv")
"""A third of pip's time; not there where the environment was made by pip alone (Makefile)."""
IMPORTS: Final = 7
SOURCES: Final = (
    *("pyproject.toml", "setup.py", "README.md", "LICENSE", "docs/openapi.yaml", "docs/errors.md"),
    *("infra/__init__.py", "infra/package/__init__.py", "infra/package/description.py"),
)
"""What a build needs beside functions/."""
AWS: Final = ("boto3", "botocore", "s3transfer", "aws_lambda_powertools", "aws_xray_sdk")
_TIMED: Final = f"""
import json, sys, time
began, busy = time.perf_counter(), time.process_time()
import delegation.client
seconds, busy = time.perf_counter() - began, time.process_time() - busy
loaded = {{name.partition(".")[0] for name in sys.modules}} & set({AWS!r})
print(json.dumps({{"seconds": seconds, "cpu": busy, "aws": sorted(loaded), "modules": len(sys.modules)}}))
"""


def built_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout below a folder, from a copy: a build leaves files beside its source."""
    return wheel_of(copied_sources(folder / "source"), folder)


def wheel_of(source: Path, folder: Path) -> Path:
    """Build the wheel of a folder of sources into a folder, and return it."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def copied_sources(source: Path) -> Path:
    """Copy what a build needs into a new folder, and return it."""
    source.mkdir(parents=True)
    for name in SOURCES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "openapi.json", "docs.html")
    shutil.copytree(ROOT / "functions", source / "functions", ignore=ignored)
    return source


class FreshEnvironment:
    """A virtual environment with a wheel of this checkout, installed as its users install it; `extra` may be empty."""

    def __init__(self, folder: Path, extra: str, wheel: Path | None = None) -> None:
        self.venv = folder / "venv"
        found = wheel or built_wheel(folder / "build")
        subprocess.run([sys.executable, "-m", "venv", *self._installer_options(), str(self.venv)], check=True)
        wanted = f"{found}[{extra}]" if extra else str(found)
        subprocess.run([*self._installer(), "-c", str(ROOT / "constraints.txt"), wanted], check=True)

    @staticmethod
    def _installer_options() -> list[str]:
        return ["--without-pip"] if UV.exists() else []

    def _installer(self) -> list[str]:
        if UV.exists():
            return [str(UV), "pip", "install", "--quiet", "--python", str(self.python)]
        return [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, without this checkout's variables."""
        command, environment = self.command(*arguments, **variables)
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def command(self, program: str, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
        """Return the words and the environment that start a program of the environment."""
        kept = {name: value for name, value in os.environ.items() if name in {"HOME", "LANG", "PATH", "TMPDIR"}}
        return [str(self.venv / "bin" / program), *arguments], {**kept, **variables}

    def installed(self) -> Mapping[str, int]:
        """Return the size in bytes of each distribution, without the installer's own."""
        (packages,) = self.venv.glob("lib/python*/site-packages")
        sizes = {}
        for record in packages.glob("*.dist-info/RECORD"):
            name = record.parent.name.partition("-")[0]
            rows = (line.rpartition(",")[0].rpartition(",")[0] for line in record.read_text("utf-8").splitlines())
            files = {packages / row for row in rows if not row.startswith("..")}
            sizes[name] = sum(file.stat().st_size for file in files if file.is_file())
        return {name: size for name, size in sorted(sizes.items()) if name not in {"pip", "setuptools"}}


def findings(fresh: FreshEnvironment) -> Iterator[tuple[str, bool]]:
    """Yield what was seen in an environment with the extra `client`, and whether it is as expected."""
    sizes = fresh.installed()
    total = sum(sizes.values()) / 1e6
    expected = {"httpx", "pydantic", "pydantic_core", "polaris_delegation_service"} <= set(sizes)
    yield f"{len(sizes)} distributions, {total:.1f} MB: {', '.join(sizes)}", expected and total < 25
    yield f"of these the package itself {sizes.get('polaris_delegation_service', 0) / 1e6:.1f} MB", True
    timed = [json.loads(fresh.run("python", "-c", _TIMED).stdout) for _ in range(IMPORTS)]
    wall, cpu = (statistics.median(one[name] for one in timed) * 1000 for name in ("seconds", "cpu"))
    modules = f"{timed[0]['modules']} modules"
    yield f"import delegation.client: {wall:.0f} ms, {cpu:.0f} ms of CPU (median of {IMPORTS}), {modules}", True
    yield f"AWS libraries loaded: {timed[0]['aws'] or 'none'}", timed[0]["aws"] == []
    for name, code in zip(("blocking", "asyncio"), examples(), strict=True):
        with serving() as stub:
            done = fresh.run("python", "-c", code, **stub.variables)
        last = (done.stdout.splitlines() or done.stderr.splitlines() or [""])[-1]
        yield f"the {name} example of the README: {last}", done.returncode == 0 and "SUCCESS 42" in last
    command = fresh.run("delegation", "tasks", "list")
    yield (
        f"`delegation` without its extra: {command.stderr.strip()}",
        command.returncode == 1 and "[cli]" in command.stderr,
    )


def main() -> int:
    """Print the findings."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for text, expected in findings(FreshEnvironment(Path(folder), "client")):
            failed += not expected
            sys.stdout.write(f"{'✓' if expected else '✗'} {text}\n")
            sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
