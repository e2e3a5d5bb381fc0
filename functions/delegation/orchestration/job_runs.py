"""Spark job runs: a seam, and EMR Serverless behind it."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.errors import DelegationError
from delegation.tasks.life.model import Task
from delegation.tasks.work.external_jobs import INLINE

logger = logging.getLogger(__name__)
_WAITING: Final = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED")
_ACTIVE: Final = (*_WAITING, "RUNNING", "CANCELLING")
_REFUSALS: Final = frozenset({
    "AccessDeniedException",
    "ConflictException",
    "ResourceNotFoundException",
    "ValidationException",
})  # fmt: skip
_UNSETTLED: Final = frozenset({"CREATING", "STOPPING"})
"""States in which an application takes no job but will again (EMR Serverless user guide, "Application states")."""


class JobServiceUnavailable(DelegationError):
    """The job service did not take a call; the same call may be repeated."""

    code: ClassVar[str] = "JOB_SERVICE_UNAVAILABLE"
    retryable: ClassVar[bool] = True


class JobRefused(DelegationError):
    """The job service refuses to start the job: its configuration has to be mended by a person."""

    code: ClassVar[str] = "JOB_REFUSED"


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job run as the service reports it; `details` is its own text, bounded, `started_at` when its driver began."""

    id: str
    name: str
    state: str
    details: str = ""
    started_at: datetime | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it has not started yet."""
        return self.state in _WAITING

    @property
    def has_ended(self) -> bool:
        """Whether it is over, however it ended."""
        return self.state in {"SUCCESS", "FAILED", "CANCELLED"}


class JobService(Protocol):
    """Starts, watches and ends job runs. Every method raises JobServiceUnavailable."""

    def start(self, name: str, arguments: Sequence[str]) -> str:
        """Start a run once under `name`, which is its client token too, and return its id. Raises JobRefused."""

    def get(self, run_id: str) -> JobRun | None:
        """A run, None when there is none of this id."""

    def active(self, prefix: str) -> Sequence[JobRun]:
        """Runs that have not ended and whose name starts with `prefix`."""

    def cancel(self, run_id: str) -> None:
        """Ask a run to end; one that has ended, or is being cancelled, is left. Raises JobRefused."""


@dataclass(frozen=True, slots=True)
class JobConfiguration:
    """What every run of the application has in common; `timeout_minutes` is EMR's execution time-out."""

    application_id: str
    role_arn: str
    entry_point: str
    spark_parameters: str
    timeout_minutes: int = 720


class EmrServerless:
    """JobService over a boto3 `emr-serverless` client."""

    def __init__(self, client: Any, application_id: str, configuration: JobConfiguration | None = None) -> None:
        self._client = client
        self._application_id = application_id
        self._configuration = configuration

    def start(self, name: str, arguments: Sequence[str]) -> str:
        """See JobService.start."""
        configuration = self._configuration
        if configuration is None:
            raise JobRefused("this function is not configured to start job runs")
        driver = {
            "entryPoint": configuration.entry_point,
            "entryPointArguments": list(arguments),
            "sparkSubmitParameters": configuration.spark_parameters,
        }
        try:
            answer = self._call(
                "start_job_run",
                clientToken=name,
                name=name,
                executionRoleArn=configuration.role_arn,
                jobDriver={"sparkSubmit": driver},
                executionTimeoutMinutes=configuration.timeout_minutes,
            )
        except JobRefused as refused:
            state = self._application_state()
            if state not in _UNSETTLED:
                raise
            raise JobServiceUnavailable(f"the EMR Serverless application is {state}") from refused
        return str(answer["jobRunId"])

    def get(self, run_id: str) -> JobRun | None:
        """See JobService.get."""
        try:
            answer = self._call("get_job_run", jobRunId=run_id)
        except JobRefused:
            return None
        return _run(answer["jobRun"], "jobRunId")

    def active(self, prefix: str) -> Sequence[JobRun]:
        """See JobService.active."""
        found: list[JobRun] = []
        token: dict[str, str] = {}
        while True:
            answer = self._call("list_job_runs", states=list(_ACTIVE), **token)
            runs = [_run(run, "id") for run in answer["jobRuns"]]
            found += [run for run in runs if run.name.startswith(prefix) and not run.has_ended]
            if not answer.get("nextToken"):
                return found
            token = {"nextToken": answer["nextToken"]}

    def cancel(self, run_id: str) -> None:
        """See JobService.cancel."""
        if self._is_ending(run_id):
            return
        try:
            self._call("cancel_job_run", jobRunId=run_id)
        except JobRefused:
            if not self._is_ending(run_id):
                raise

    def _application_state(self) -> str:
        try:
            return str(self._call("get_application")["application"]["state"])
        except JobRefused:
            return "UNKNOWN"

    def _is_ending(self, run_id: str) -> bool:
        run = self.get(run_id)
        return run is None or run.has_ended or run.state == "CANCELLING"

    def _call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(applicationId=self._application_id, **arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            kind = JobRefused if code in _REFUSALS else JobServiceUnavailable
            raise kind(f"EMR Serverless answered {code} to {operation}") from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise JobServiceUnavailable(f"EMR Serverless: {type(error).__name__}") from error
        return answer


class ExternalJobRuns:
    """tasks.outside.Outside over a JobService: an attempt's job runs, those whose ids were not stored among them."""

    def __init__(self, jobs: JobService, *, rest_seconds: float = 0, now: Callable[[], float] = time.monotonic) -> None:
        """A service that did not answer is not asked again for `rest_seconds`, by the monotonic clock `now`.

        Who looks at many lost tasks in a row would wait for it once for each, and have no time for the others.
        """
        self._jobs = jobs
        self._rest_seconds = rest_seconds
        self._now = now
        self._away_until = now()

    def end(self, task: Task) -> bool:
        """See Outside.end. What the service refuses to end needs a person; the task does not wait for that.

        What it still does is refused by its attempt number, and it stops at its next look.
        """
        if task.engine == INLINE:
            return True
        if self._now() < self._away_until:
            return False
        try:
            for run_id in sorted(self._runs_of(task)):
                self._cancel(task, run_id)
        except JobServiceUnavailable as error:
            logger.warning("job runs were not ended", extra={"task_id": task.task_id, "error_code": error.code})
            self._away_until = self._now() + self._rest_seconds
            return False
        return True

    def _runs_of(self, task: Task) -> set[str]:
        stored = set() if task.job_run_id is None else {task.job_run_id}
        try:
            return stored | {run.id for run in self._jobs.active(f"{task.task_id}-")}
        except JobRefused as refused:
            logger.warning("job runs cannot be listed", extra={"task_id": task.task_id, "error_code": refused.code})
            return stored

    def _cancel(self, task: Task, run_id: str) -> None:
        try:
            self._jobs.cancel(run_id)
        except JobRefused as refused:
            fields = {"task_id": task.task_id, "job_run_id": run_id, "error_code": refused.code}
            logger.warning("a job run cannot be cancelled", extra=fields)


def _run(answer: dict[str, Any], id_field: str) -> JobRun:
    return JobRun(
        answer[id_field],
        answer.get("name", ""),
        answer["state"],
        str(answer.get("stateDetails", ""))[:500],
        answer.get("startedAt"),  # of GetJobRun, from RUNNING on (Amazon EMR Serverless API reference, JobRun)
    )
