"""DynamoDB for one machine: Amazon's DynamoDB Local, fetched once with Maven into the user's cache folder.

moto's DynamoDB loses acknowledged writes under threads, so tests of concurrency use this one. If Java 17 or Maven is
missing, `UnavailableError` is raised and the stack uses moto's, one request at a time (moto_app.py).
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from infra.environment.context import ROOT
from infra.local.errors import CannotStartError, UnavailableError
from infra.local.processes.programs import ServerProcess, TetheredProcess, answers, free_port

POM = Path(__file__).with_name("dynamodb-local-pom.xml")
_MAIN = "software.amazon.dynamodb.services.local.main.ServerRunner"
_JAVA_MINIMUM = 17
_FETCH_TIMEOUT_SECONDS = 600
_START_TIMEOUT_SECONDS = 60
_START_ATTEMPTS = 3


def cache_folder() -> Path:
    """Return the folder for fetched files: `polaris-delegation` in `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "polaris-delegation"


def java() -> str:
    """Return the path of a Java 17 or later; raise `UnavailableError` if there is none."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    program = program or shutil.which("java")
    if not program:
        raise UnavailableError("Java is not installed (Java 17 is needed)")
    done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    stated = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    if done.returncode != 0 or stated is None:
        raise UnavailableError(f"{program} does not run: {(done.stderr or done.stdout).strip()[:200]}")
    if int(stated.group(1)) < _JAVA_MINIMUM:
        raise UnavailableError(f"{program} is Java {stated.group(1)} (Java {_JAVA_MINIMUM} is needed)")
    return program


def fetch(pom: Path = POM, name: str = "dynamodb-local") -> Path:
    """Return the folder with a project's jars, fetched unless cached; several processes may call it at once.

    The jars are DynamoDB Local's unless `pom` and the cache's `name` are given. They are in the checkout's `.cache` if
    the user's cache folder cannot be written. Raises `UnavailableError` if Maven is missing or cannot fetch them.
    """
    version = hashlib.sha256(pom.read_bytes()).hexdigest()[:12]
    places = [cache_folder() / name, ROOT / ".cache" / name]
    if kept := next((place / version for place in places if (place / version).is_dir()), None):
        return kept
    maven = shutil.which("mvn")
    if not maven:
        raise UnavailableError(f"Maven is not installed (it fetches {name})")
    root = next((place for place in places if _can_be_written(place)), None)
    if root is None:
        raise UnavailableError(f"{places[0]} and {places[1]} cannot be written; set XDG_CACHE_HOME to another folder")
    folder = root / version
    with _locked(root / "fetch.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=root) as temporary:
                jars = Path(temporary) / "jars"
                _copy_jars(maven, pom, name, work=Path(temporary), jars=jars)
                jars.rename(folder)
    return folder


def _can_be_written(folder: Path) -> bool:
    """Make a folder if necessary; return whether this process may write into it."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _copy_jars(maven: str, pom: Path, name: str, *, work: Path, jars: Path) -> None:
    # Maven may write next to the project file, so it gets a copy.
    copy = shutil.copy(pom, work / "pom.xml")
    command = [maven, "-q", "-B", "-f", str(copy), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    if not _can_be_written(Path.home() / ".m2" / "repository"):
        command.append(f"-Dmaven.repo.local={work / 'repository'}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as exc:
        raise UnavailableError(f"Maven did not fetch {name} within {_FETCH_TIMEOUT_SECONDS} s") from exc
    if done.returncode != 0 or not jars.is_dir():
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["Maven printed no error"]
        raise UnavailableError(f"Maven could not fetch {name}: {errors[0]}")
    # SQLite's native library is loaded by its name without a version.
    for library in jars.glob("libsqlite4java-*"):
        plain = re.sub(r"-\d[\d.]*(\.\w+)$", r"\1", library.name)
        if plain != library.name:
            (jars / plain).symlink_to(library.name)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class DynamoDbLocal(ServerProcess):
    """One DynamoDB Local in memory, with the same tables for every access key and region."""

    def start(self) -> Self:
        """Fetch it if necessary, start it on a free port and wait until it answers (about 3 s).

        Raises `UnavailableError` if Java or Maven is missing, `CannotStartError` if it does not start.
        """
        program, jars = java(), fetch()
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._launch(program, jars)
            except CannotStartError:
                # Another process may have bound the port since it was found to be free.
                if attempt == _START_ATTEMPTS:
                    raise
            else:
                break
        return self

    def _launch(self, program: str, jars: Path) -> None:
        self._port = free_port()
        options = [
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Djava.library.path={jars}",
        ]
        server = [_MAIN, "-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self._port)]
        process = TetheredProcess.start([program, *options, "-cp", f"{jars}/*", *server], env=os.environ, log=self._log)
        process.wait_until("DynamoDB Local", self._answers, timeout_seconds=_START_TIMEOUT_SECONDS)
        self._process = process

    def _answers(self) -> bool:
        # The request is unsigned, so a ready server answers 400.
        return answers(self._port, "POST", headers={"X-Amz-Target": "DynamoDB_20120810.ListTables"})
