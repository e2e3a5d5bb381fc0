"""Job runs of EMR Serverless as `spark-submit` on this machine, each in a separate process group.

A job with archives runs as in EMR's image: they are downloaded below the names of their S3 keys and unpacked, as Spark
unpacks them, into the directory in which the job runs, and Python finds nothing that this machine has installed but the
libraries that the archive is not meant to have.

EMR Serverless API reference, "JobRun", "StartJobRun", "CancelJobRun"; user guide, "Job run states"; archives: Spark 3.5
and 4, `org.apache.spark.util.Utils.unpack` (tests/integration/local/test_emr_archives.py compares both).
"""

import argparse
import contextlib
import os
import shlex
import shutil
import sys
import tarfile
import threading
import time
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import urlsplit

import pyspark
from pydantic import AliasPath, BaseModel, ConfigDict, Field

from infra.local.errors import LocalStackError
from infra.local.processes.programs import LOOPBACK, TetheredProcess, import_path


class Unpacking(StrEnum):
    """What Spark does with an archive."""

    ZIP = "zip"
    TAR = "tar"
    COPY = "copy"
    """Nothing: the archive's file is where the directory should be ("Cannot unpack …, just copying it to …")."""


_ENDINGS: Final = {
    ".jar": Unpacking.ZIP,
    ".zip": Unpacking.ZIP,
    ".tar.gz": Unpacking.TAR,
    ".tgz": Unpacking.TAR,
    ".tar": Unpacking.TAR,
}


def unpacking(name: str) -> Unpacking:
    """Return what Spark does with an archive of this file name or object key."""
    lower = name.lower()
    return next((how for ending, how in _ENDINGS.items() if lower.endswith(ending)), Unpacking.COPY)


def unpack(archive: Path, target: Path) -> None:
    """Unpack an archive into a new directory, or copy it there as a file, as its name states; raises OSError."""
    match unpacking(archive.name):
        case Unpacking.ZIP:
            with zipfile.ZipFile(archive) as opened:
                opened.extractall(target)  # noqa: S202 - our own archive
        case Unpacking.TAR:
            with tarfile.open(archive) as packed:
                # Python 3.11.2 (Debian 12) has no filters; the archive is our own.
                packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, _path: member)
                packed.extractall(target)  # noqa: S202
        case Unpacking.COPY:
            shutil.copyfile(archive, target)


def parsed(setting: str) -> tuple[tuple[str, str], ...]:
    """Return the URIs of `spark.archives` (separated by commas) with the names of their directories."""
    named = []
    for assignment in filter(None, setting.split(",")):
        uri, _, alias = assignment.partition("#")
        named.append((uri, alias or Path(urlsplit(uri).path).name))
    return tuple(named)


TERMINAL = frozenset({"SUCCESS", "FAILED", "CANCELLED"})
_DRIVER_ENVIRONMENT = ("spark.emr-serverless.driverEnv.", "spark.yarn.appMasterEnv.")
# Not used here because they describe EMR: the interpreter in an archive, the size of workers.
_EMR_ONLY_VARIABLES = frozenset({"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME"})
_EMR_ONLY_SETTINGS = ("spark.emr-serverless.", "spark.executor.", "spark.dynamicAllocation.")
_ARCHIVES = "spark.archives"
_S3 = frozenset({"s3", "s3a", "s3n"})


class JobNotFoundError(LocalStackError):
    """No job run has that id (`ResourceNotFoundException`)."""


class JobConflictError(LocalStackError):
    """The client token belongs to another request (`ConflictException`)."""


class JobRequestError(LocalStackError):
    """The request is not valid (`ValidationException`)."""


def _of_driver(name: str) -> AliasPath:
    return AliasPath("jobDriver", "sparkSubmit", name)


class JobRequest(BaseModel):
    """A `StartJobRun` request; equal requests with one client token are one job run."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    client_token: str = Field(validation_alias="clientToken")
    execution_role: str = Field(validation_alias="executionRoleArn")
    entry_point: str = Field(validation_alias=_of_driver("entryPoint"))
    arguments: tuple[str, ...] = Field((), validation_alias=_of_driver("entryPointArguments"))
    spark_parameters: str = Field("", validation_alias=_of_driver("sparkSubmitParameters"))
    name: str = ""
    timeout_minutes: int = Field(720, validation_alias="executionTimeoutMinutes", ge=1)


@dataclass(slots=True)
class LocalJobRun:
    """A job run; its thread and `cancel` change it under the lock of `LocalSparkJobs`."""

    id: str
    request: JobRequest
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    state: str = "SUBMITTED"
    details: str = ""
    cancel_requested: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class SparkCommand:
    """Parsed `sparkSubmitParameters`: command line options, variables of the driver, and archives (URI, directory)."""

    options: tuple[str, ...]
    environment: Mapping[str, str] = field(repr=False)
    archives: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, parameters: str) -> "SparkCommand":
        """Parse the parameters; raise `JobRequestError` if they are not shell words or an option has no value."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        parser.add_argument("--conf", "-c", action="append", default=[])
        try:
            given, others = parser.parse_known_args(shlex.split(parameters))
        except argparse.ArgumentError as exc:
            raise JobRequestError("sparkSubmitParameters: --conf has no value") from exc
        except ValueError as exc:
            raise JobRequestError(f"sparkSubmitParameters: {exc}") from exc
        options: list[str] = []
        environment: dict[str, str] = {}
        archives: list[tuple[str, str]] = []
        for setting in given.conf:
            if setting.startswith(f"{_ARCHIVES}="):
                archives += parsed(setting.removeprefix(f"{_ARCHIVES}="))
            else:
                _add_setting(setting, options, environment)
        options += others
        return cls(tuple(options), MappingProxyType(environment), tuple(archives))


def _add_setting(setting: str, options: list[str], environment: dict[str, str]) -> None:
    key, equals, value = setting.partition("=")
    if not equals:
        raise JobRequestError(f"sparkSubmitParameters: --conf {key} has no value")
    for prefix in _DRIVER_ENVIRONMENT:
        if key.startswith(prefix):
            variable = key.removeprefix(prefix)
            if variable not in _EMR_ONLY_VARIABLES:
                environment[variable] = value
            return
    if key.removeprefix("spark.executorEnv.") in _EMR_ONLY_VARIABLES or key.startswith(_EMR_ONLY_SETTINGS):
        return
    options.extend(["--conf", setting])


@dataclass(kw_only=True, eq=False)
class LocalSparkJobs:
    """Runs jobs, `concurrency` at once; the others are PENDING.

    `environment` is added to the variables of every job, as EMR adds region and role credentials. `download(bucket,
    key, to)` fetches an entry point or an archive with an `s3://` URI. `minute_seconds` is the length of a minute of
    the execution time-out. `python` is the interpreter of EMR's image, `libraries` are directories that a job with
    archives finds besides those.
    """

    log_folder: Path
    environment: Mapping[str, str]
    download: Callable[[str, str, Path], None]
    concurrency: int = 2
    master: str = "local[2]"
    minute_seconds: float = 60.0
    python: str = sys.executable
    libraries: Sequence[str] = ()

    def __post_init__(self) -> None:
        self._slots = threading.Semaphore(self.concurrency)
        self._lock = threading.Lock()
        self._runs: dict[str, LocalJobRun] = {}
        self._by_token: dict[str, str] = {}

    def start(self, request: JobRequest) -> LocalJobRun:
        """Start a job run, or return the one that this client token started.

        Raises `JobConflictError` if the token belongs to another request, `JobRequestError` for invalid parameters.
        """
        command = SparkCommand.parse(request.spark_parameters)
        with self._lock:
            if known := self._by_token.get(request.client_token):
                run = self._runs[known]
                if run.request != request:
                    raise JobConflictError("The client token was used with other parameters")
                return run
            now = datetime.now(UTC)
            run = LocalJobRun(f"00{uuid.uuid4().hex[:14]}", request, created_at=now, updated_at=now)
            self._runs[run.id] = run
            self._by_token[request.client_token] = run.id
        threading.Thread(target=self._run, args=(run, command), name=f"job-{run.id}", daemon=True).start()
        return run

    def get(self, run_id: str) -> LocalJobRun:
        """Return the job run; raise `JobNotFoundError`."""
        with self._lock:
            try:
                return self._runs[run_id]
            except KeyError:
                raise JobNotFoundError(f"Job run {run_id} does not exist") from None

    def list(self, states: Sequence[str] = ()) -> "list[LocalJobRun]":
        """Return the job runs in any of `states` (all if empty), the newest first."""
        with self._lock:
            runs = [run for run in self._runs.values() if not states or run.state in states]
        return sorted(runs, key=lambda run: run.created_at, reverse=True)

    def cancel(self, run_id: str) -> LocalJobRun:
        """Request the end of a job run; raises `JobNotFoundError`, `JobRequestError` if it has ended already."""
        run = self.get(run_id)
        with self._lock:
            if run.state in TERMINAL:
                raise JobRequestError(f"Job run {run_id} is in terminal state {run.state}")
            self._set_state(run, "CANCELLING", "The job run is being cancelled")
        run.cancel_requested.set()
        return run

    def stop(self) -> None:
        """Cancel every job run and wait until their processes have ended; may be called again."""
        runs = self.list()
        for run in runs:
            with contextlib.suppress(JobRequestError):
                self.cancel(run.id)
        for run in runs:
            run.ended.wait()

    def _run(self, run: LocalJobRun, command: SparkCommand) -> None:
        state, details = "FAILED", "Job failed to start"
        try:
            state, details = self._wait_for_a_slot(run, command)
        except (OSError, LocalStackError, tarfile.TarError, zipfile.BadZipFile) as exc:
            details = f"Job failed to start: {exc}"
        finally:
            # Nobody waits for a job whose thread ended by an error that is not expected here.
            if (error := sys.exception()) is not None:
                details = f"Job failed to start: {type(error).__name__}: {error}"
            with self._lock:
                self._set_state(run, state, details)
            run.ended.set()

    def _wait_for_a_slot(self, run: LocalJobRun, command: SparkCommand) -> tuple[str, str]:
        self._advance(run, "PENDING")
        while not self._slots.acquire(timeout=0.2):
            if run.cancel_requested.is_set():
                return "CANCELLED", "The job run was cancelled before it started"
        try:
            return self._submit(run, command)
        finally:
            self._slots.release()

    def _submit(self, run: LocalJobRun, command: SparkCommand) -> tuple[str, str]:
        self._advance(run, "SCHEDULED")
        folder = self.log_folder / run.id
        folder.mkdir(parents=True)
        entry_point = self._entry_point(run.request.entry_point, folder)
        work = self._unpack(command.archives, folder)
        if run.cancel_requested.is_set():
            return "CANCELLED", "The job run was cancelled before it started"
        argv = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            *("--master", self.master, "--name", run.request.name or run.id),
            # For a quick start on a small machine; the job's settings follow and override these, or add to the first.
            *("--conf", "spark.driver.defaultJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=4"),
            *("--conf", "spark.python.unix.domain.socket.enabled=true"),
            *("--conf", f"spark.driver.bindAddress={LOOPBACK}", "--conf", f"spark.driver.host={LOOPBACK}"),
            *command.options,
            entry_point,
            *run.request.arguments,
        ]
        process = TetheredProcess.start(
            argv, env=self._job_environment(command, folder), log=folder / "stdout", errors=folder / "stderr", cwd=work
        )
        self._advance(run, "RUNNING")
        return self._watch(run, process)

    def _watch(self, run: LocalJobRun, process: TetheredProcess) -> tuple[str, str]:
        deadline = time.monotonic() + run.request.timeout_minutes * self.minute_seconds
        while process.poll() is None:
            if run.cancel_requested.wait(0.1):
                process.stop()
                return "CANCELLED", "The job run was cancelled"
            if time.monotonic() > deadline:
                process.stop()
                return "CANCELLED", f"The job run exceeded its execution time-out of {run.request.timeout_minutes} min"
        status = process.wait()
        if status == 0:
            return "SUCCESS", ""
        # The log may contain anything, so the details do not quote it.
        return "FAILED", f"Job failed, please check complete logs in {process.log.parent}. ExitCode: {status}"

    def _entry_point(self, uri: str, folder: Path) -> str:
        path = self._fetch(uri, folder)
        if not path.is_file():
            raise JobRequestError(f"entry point {uri} does not exist")
        return str(path)

    def _fetch(self, uri: str, folder: Path) -> Path:
        """Return the path of a file, downloaded below the name that its key has."""
        url = urlsplit(uri)
        if url.scheme not in _S3:
            return Path(url.path if url.scheme == "file" else uri)
        target = folder / Path(url.path).name
        self.download(url.netloc, url.path.removeprefix("/"), target)
        return target

    def _unpack(self, archives: Sequence[tuple[str, str]], folder: Path) -> Path:
        """Return the directory in which the job runs, with its archives as Spark unpacks them."""
        work = folder / "work"
        work.mkdir()
        for uri, name in archives:
            unpack(self._fetch(uri, folder), work / name)
        return work

    def _image_python(self, folder: Path) -> str:
        """Return a command for this interpreter that finds no package installed for it, as with `-S`."""
        program = folder / "python"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(self.python)} -S "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        return str(program)

    def _job_environment(self, command: SparkCommand, folder: Path) -> dict[str, str]:
        python, paths = self.python, import_path()
        if command.archives:
            python = self._image_python(folder)
            paths = os.pathsep.join([*filter(None, [command.environment.get("PYTHONPATH")]), *self.libraries])
        inherited = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "HOME", "TMPDIR") if name in os.environ}
        return {
            **inherited,
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONUNBUFFERED": "1",
            "PYSPARK_PYTHON": python,
            "PYSPARK_DRIVER_PYTHON": python,
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": LOOPBACK,
            **self.environment,
            **command.environment,
            "PYTHONPATH": paths,
        }

    def _advance(self, run: LocalJobRun, state: str) -> None:
        """Set the state, unless the job run is CANCELLING, which it stays until it ends."""
        with self._lock:
            if run.state != "CANCELLING":
                self._set_state(run, state, "")

    @staticmethod
    def _set_state(run: LocalJobRun, state: str, details: str) -> None:
        run.state, run.details, run.updated_at = state, details, datetime.now(UTC)
        if state == "RUNNING":
            run.started_at = run.updated_at
