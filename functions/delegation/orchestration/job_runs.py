"""Spark job runs on EMR Serverless, and the policy that narrows each run's role."""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from botocore.exceptions import ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError

from delegation.tasks.life.model import Task
from delegation.tasks.work.hooks import INLINE
from delegation.timestamps import utc_now
from polaris_common.errors import DelegationError

READS: Final = (
    "dynamodb:BatchGetItem",
    "dynamodb:BatchWriteItem",
    "dynamodb:DeleteItem",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
    "dynamodb:Query",
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "logs:CreateLogStream",
    "logs:DescribeLogGroups",
    "logs:DescribeLogStreams",
    "logs:PutLogEvents",
    "s3:GetObject",
    "s3:ListBucket",
    "secretsmanager:GetSecretValue",
)
"""The actions that a run keeps of its role's; the policy allows no resource that the role does not."""


def folders_of(task: Task, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the record bucket's folders that a task's run writes: its own, a given plan's, and `more`. A purge that
    executes a dry run's plan keeps its marks and receipt beside that plan."""
    folders = [task.task_id, f"results/{task.task_id}", *more]
    plan = _named_plan(task)
    return (*folders, plan) if plan is not None else tuple(folders)


def run_policy(role_arn: str, bucket: str, folders: Sequence[str]) -> str:
    """Return the policy of a run that may write to these folders of the record bucket and to no other object."""
    partition = role_arn.split(":")[1]
    written = [f"arn:{partition}:s3:::{bucket}/{folder}/*" for folder in folders]
    statements = [
        {"Effect": "Allow", "Action": list(READS), "Resource": "*"},
        {"Effect": "Allow", "Action": "s3:PutObject", "Resource": written},
    ]
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _named_plan(task: Task) -> str | None:
    """Return the folder of the plan that a request named, None without one or for another kind of payload."""
    try:
        payload: Any = json.loads(task.task_payload)
    except ValueError:
        return None
    match payload:
        case {"operation_parameters": {"properties": {"plan": str(plan)}}}:
            return plan.partition("/")[0]
        case _:
            return None


logger = logging.getLogger(__name__)
_WAITING: Final = ("SUBMITTED", "PENDING", "SCHEDULED", "QUEUED")
_ACTIVE: Final = (*_WAITING, "RUNNING", "CANCELLING")
_UNSETTLED: Final = frozenset({"CREATING", "STOPPING"})
"""Application states that refuse jobs for a while (Amazon EMR Serverless User Guide, "Application states")."""

_COMPILES: Final = "-XX:TieredStopAtLevel=4"
"""Replaces the package's JAVA_OPTIONS with the JVM's default."""
_LIST_SERVES: Final = timedelta(minutes=1)
"""How long a list of active runs serves requests about an earlier time."""


class JobServiceUnavailable(DelegationError):
    """A call to the job service failed; the same call may be repeated."""

    code = "JOB_SERVICE_UNAVAILABLE"
    retryable = True


class JobRefused(DelegationError):
    """The job service refused a call; an operator has to correct the configuration."""

    code = "JOB_REFUSED"


class JobRunUnknown(JobRefused):
    """The job service knows no such job run or application."""


_REFUSALS: Final = {
    "AccessDeniedException": JobRefused,
    "ConflictException": JobRefused,
    "ResourceNotFoundException": JobRunUnknown,
    "ValidationException": JobRefused,
}


@dataclass(frozen=True, slots=True)
class JobRun:
    """A job run as the service reports it; `details` is its text, bounded, `started_at` when its driver started."""

    id: str
    name: str
    state: str
    details: str = ""
    started_at: datetime | None = None

    @property
    def is_waiting(self) -> bool:
        return self.state in _WAITING

    @property
    def has_ended(self) -> bool:
        return self.state in {"SUCCESS", "FAILED", "CANCELLED"}


class JobService(Protocol):
    """Starts, reads and cancels job runs. Every method raises JobServiceUnavailable."""

    def start(
        self, name: str, arguments: Sequence[str], folders: Sequence[str] = (), *, with_jars: bool = False
    ) -> str:
        """Start a run once and return its id; `name` is also its client token. The run may write only to these
        `folders` of the record bucket, if any. Raises JobRefused."""

    def get(self, run_id: str) -> JobRun | None:
        """Return a run, None if the service knows none with this id. Raises JobRefused if it may not be read."""

    def active(self, prefix: str, *, as_of: datetime | None = None) -> Sequence[JobRun]:
        """Return the runs that have not ended and whose names start with `prefix`. With `as_of`, a list read at that
        time or later suffices: it has every run started before. A run in it may have ended since."""

    def cancel(self, run_id: str) -> None:
        """Cancel a run unless it has ended or is being cancelled. Raises JobRefused."""


def jar_settings(jars: Sequence[str]) -> dict[str, str]:
    """Return the Spark settings that load jars; those without a path are Maven coordinates."""
    settings = {
        "spark.jars": ",".join(jar for jar in jars if "/" in jar),
        "spark.jars.packages": ",".join(jar for jar in jars if "/" not in jar),
    }
    return {name: value for name, value in settings.items() if value}


@dataclass(frozen=True, slots=True)
class JobConfiguration:
    """The parameters of all runs of the application; `timeout_minutes` is EMR's execution time-out. With
    `record_bucket` each run gets its own policy (`run_policy`). `jars` are URIs or Maven coordinates, for the runs that
    need them."""

    application_id: str
    role_arn: str
    entry_point: str
    spark_parameters: str
    timeout_minutes: int = 720
    record_bucket: str | None = None
    jars: tuple[str, ...] = ()

    def parameters(self, *, with_jars: bool) -> str:
        """Return `sparkSubmitParameters`. Raises JobRefused without the jars that a run needs.

        A run with jars works in the JVM, which therefore gets its optimizing compiler.
        """
        if not with_jars:
            return self.spark_parameters
        if not self.jars:
            raise JobRefused("this deployment has no Iceberg runtime for Spark jobs. Set delegation:emr-jars")
        settings = {
            **jar_settings(self.jars),
            **dict.fromkeys(("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"), _COMPILES),
        }
        given = [f"--conf {name}={value}" for name, value in settings.items()]
        return " ".join((self.spark_parameters, *given)).lstrip()


class EmrServerless:
    """JobService over a boto3 `emr-serverless` client; a list of active runs may be reused for a minute. Runs are
    started in `application_id`, and found there or in the `former` applications, which were used before a deployment
    made this one. A deleted application has no runs."""

    def __init__(
        self,
        client: Any,
        application_id: str,
        configuration: JobConfiguration | None = None,
        *,
        former: Sequence[str] = (),
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._application_id = application_id
        self._former = tuple(former)
        self._configuration = configuration
        self._clock = clock
        self._listed: Sequence[JobRun] = ()
        self._listed_at: datetime | None = None

    def start(
        self, name: str, arguments: Sequence[str], folders: Sequence[str] = (), *, with_jars: bool = False
    ) -> str:
        configuration = self._configuration
        if configuration is None:
            raise JobRefused("this process has no configuration to start job runs. Set the DELEGATION_EMR_* settings")
        driver = {
            "entryPoint": configuration.entry_point,
            "entryPointArguments": list(arguments),
            "sparkSubmitParameters": configuration.parameters(with_jars=with_jars),
        }
        own: dict[str, Any] = {}
        if configuration.record_bucket is not None and folders:
            policy = run_policy(configuration.role_arn, configuration.record_bucket, folders)
            own["executionIamPolicy"] = {"policy": policy}
        try:
            answer = self._call(
                "start_job_run",
                **own,
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
            raise JobServiceUnavailable(
                f"the EMR Serverless application is {state} and does not start job runs yet"
            ) from refused
        return str(answer["jobRunId"])

    def get(self, run_id: str) -> JobRun | None:
        located = self._found(run_id)
        return None if located is None else located[1]

    def active(self, prefix: str, *, as_of: datetime | None = None) -> Sequence[JobRun]:
        now = self._clock()
        at = self._listed_at
        if as_of is None or at is None or not as_of <= at <= now < at + _LIST_SERVES:
            self._listed, self._listed_at = self._list(), now
        return [run for run in self._listed if run.name.startswith(prefix)]

    def _found(self, run_id: str) -> tuple[str, JobRun] | None:
        for application in (self._application_id, *self._former):
            with contextlib.suppress(JobRunUnknown):
                answer = self._call("get_job_run", application, jobRunId=run_id)
                return application, _run(answer["jobRun"], "jobRunId")
        return None

    def _list(self) -> Sequence[JobRun]:
        runs = list(self._list_of(self._application_id))
        for application in self._former:
            with contextlib.suppress(JobRunUnknown):
                runs += self._list_of(application)
        return runs

    def _list_of(self, application: str) -> Sequence[JobRun]:
        open_runs: list[JobRun] = []
        token: dict[str, str] = {}
        while True:
            answer = self._call("list_job_runs", application, states=list(_ACTIVE), **token)
            runs = [_run(run, "id") for run in answer["jobRuns"]]
            open_runs += [run for run in runs if not run.has_ended]
            if not answer.get("nextToken"):
                return open_runs
            token = {"nextToken": answer["nextToken"]}

    def cancel(self, run_id: str) -> None:
        try:
            located = self._found(run_id)
            if located is None or _is_ending(located[1]):
                return
            applications: Sequence[str] = (located[0],)
        except JobRefused:  # it may be cancelled although it may not be read
            applications = (self._application_id, *self._former)
        for application in applications:
            try:
                self._call("cancel_job_run", application, jobRunId=run_id)
            except JobRunUnknown:
                continue
            except JobRefused:
                if not self._may_be_ending(run_id):
                    raise
            return

    def _application_state(self) -> str:
        try:
            return str(self._call("get_application")["application"]["state"])
        except JobRefused:
            return "UNKNOWN"

    def _may_be_ending(self, run_id: str) -> bool:
        """Return whether the run needs no cancelling; False for one that may not be read."""
        try:
            run = self.get(run_id)
        except JobRefused:
            return False
        return run is None or _is_ending(run)

    def _call(self, operation: str, application: str | None = None, **arguments: Any) -> dict[str, Any]:
        chosen = application or self._application_id
        try:
            answer: dict[str, Any] = getattr(self._client, operation)(applicationId=chosen, **arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            kind = _REFUSALS.get(code, JobServiceUnavailable)
            raise kind(f"EMR Serverless answered {code} to {operation}") from error
        except (HTTPClientError, BotoConnectionError) as error:
            raise JobServiceUnavailable(f"EMR Serverless could not be reached: {type(error).__name__}") from error
        return answer


class ExternalJobRuns:
    """ExternalJobs over a JobService: ends an attempt's job runs, also those whose ids were not stored."""

    def __init__(self, jobs: JobService, *, rest_seconds: float = 0, now: Callable[[], float] = time.monotonic) -> None:
        """After a failed call it makes none for `rest_seconds` of the monotonic clock `now`. Otherwise a sweep over
        many lost tasks would spend its time on one service's time-outs."""
        self._jobs = jobs
        self._rest_seconds = rest_seconds
        self._now = now
        self._unavailable_until = now()

    def end(self, task: Task) -> bool:
        """End the task's runs. One that the service refuses to cancel counts as ended: the fencing token has its writes
        refused, and it stops at its next checkpoint."""
        if task.engine == INLINE:
            return True
        if self._now() < self._unavailable_until:
            return False
        try:
            for run_id in sorted(self._runs_of(task)):
                self._cancel(task, run_id)
        except JobServiceUnavailable as error:
            logger.warning(
                "the job runs of a lost attempt could not be cancelled; the next sweep tries again",
                extra={"task_id": task.task_id, "error_code": error.code},
            )
            self._unavailable_until = self._now() + self._rest_seconds
            return False
        return True

    def _runs_of(self, task: Task) -> set[str]:
        stored = set() if task.job_run_id is None else {task.job_run_id}
        try:
            # Runs of the attempt were started before its lease ended: one list serves a sweep over many lost attempts.
            active = self._jobs.active(f"{task.task_id}-", as_of=task.lease.lost_not_before)
            return stored | {run.id for run in active}
        except JobRefused as refused:
            logger.warning(
                "EMR Serverless refused to list job runs", extra={"task_id": task.task_id, "error_code": refused.code}
            )
            return stored

    def _cancel(self, task: Task, run_id: str) -> None:
        try:
            self._jobs.cancel(run_id)
        except JobRefused as refused:
            fields = {"task_id": task.task_id, "job_run_id": run_id, "error_code": refused.code}
            logger.warning("EMR Serverless refused to cancel a job run", extra=fields)


def _is_ending(run: JobRun) -> bool:
    return run.has_ended or run.state == "CANCELLING"


def _run(answer: dict[str, Any], id_field: str) -> JobRun:
    return JobRun(
        answer[id_field],
        answer.get("name", ""),
        answer["state"],
        str(answer.get("stateDetails", ""))[:500],
        answer.get("startedAt"),  # only in GetJobRun and from RUNNING on (Amazon EMR Serverless API Reference, JobRun)
    )
