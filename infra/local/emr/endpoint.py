"""EMR Serverless for one machine: the five operations of its REST API that this service calls.

EMR Serverless API reference: StartJobRun, GetJobRun, CancelJobRun, ListJobRuns, GetApplication.
"""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from werkzeug.wrappers import Request, Response

from infra.local.emr import spark_jobs
from infra.local.errors import LocalStackError
from infra.local.processes.programs import WsgiServer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

RELEASE = "local-spark"
_PATH = re.compile(r"/applications/(?P<application>[^/]+)(?P<runs>/jobruns(?:/(?P<run>[^/]+))?)?")
_ERRORS = {
    spark_jobs.JobNotFoundError: (404, "ResourceNotFoundException"),
    spark_jobs.JobConflictError: (409, "ConflictException"),
    spark_jobs.JobRequestError: (400, "ValidationException"),
}


class EmrServerlessEndpoint(WsgiServer):
    """One application that is always STARTED; `.url` is the value for `AWS_ENDPOINT_URL_EMR_SERVERLESS`."""

    def __init__(
        self, jobs: spark_jobs.LocalSparkJobs, *, region: str, account: str, application_id: str = "00local0spark0app"
    ) -> None:
        super().__init__(self)
        self.application_id = application_id
        self._jobs = jobs
        self._arn = f"arn:aws:emr-serverless:{region}:{account}:/applications/{application_id}"
        self._account = account
        self._started = datetime.now(UTC)

    def stop(self) -> None:
        """Stop serving and end every job run; may be called again."""
        super().stop()
        self._jobs.stop()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = Request(environ)
        try:
            response = _json(200, self._answer(request))
        except LocalStackError as exc:
            status, name = _ERRORS[type(exc)]
            response = _json(status, {"message": str(exc)})
            response.headers["x-amzn-ErrorType"] = name
        return response(environ, start_response)

    def _answer(self, request: Request) -> dict[str, Any]:
        path = _PATH.fullmatch(request.path)
        if path is None:
            raise spark_jobs.JobRequestError(f"{request.method} {request.path} is not an operation of this endpoint")
        if path["application"] != self.application_id:
            raise spark_jobs.JobNotFoundError(f"Application {path['application']} does not exist")
        match (request.method, bool(path["runs"]), path["run"]):
            case ("GET", False, None):
                return {"application": self._application()}
            case ("POST", True, None):
                run = self._jobs.start(_job_request(request))
                return {"applicationId": self.application_id, "jobRunId": run.id, "arn": self._run_arn(run)}
            case ("GET", True, None):
                return self._list(request)
            case ("GET", True, str(run_id)):
                return {"jobRun": self._describe(self._jobs.get(run_id))}
            case ("DELETE", True, str(run_id)):
                run = self._jobs.cancel(run_id)
                return {"applicationId": self.application_id, "jobRunId": run.id}
            case _:
                raise spark_jobs.JobRequestError(
                    f"{request.method} {request.path} is not an operation of this endpoint"
                )

    def _list(self, request: Request) -> dict[str, Any]:
        size, start = request.args.get("maxResults", 50, type=int), request.args.get("nextToken", 0, type=int)
        runs = self._jobs.list(request.args.getlist("states"))
        after, before = _date(request, "createdAtAfter"), _date(request, "createdAtBefore")
        runs = [
            run for run in runs if (not after or run.created_at > after) and (not before or run.created_at < before)
        ]
        answer: dict[str, Any] = {
            "jobRuns": [
                {**self._common(run), "id": run.id, "type": "Spark", "mode": "BATCH"}
                for run in runs[start : start + size]
            ]
        }
        if start + size < len(runs):
            answer["nextToken"] = str(start + size)
        return answer

    def _application(self) -> dict[str, Any]:
        moment = self._started.timestamp()
        return {
            "applicationId": self.application_id,
            "name": "local",
            "arn": self._arn,
            "releaseLabel": RELEASE,
            "type": "Spark",
            "state": "STARTED",
            "createdAt": moment,
            "updatedAt": moment,
        }

    def _common(self, run: spark_jobs.LocalJobRun) -> dict[str, Any]:
        return {
            "applicationId": self.application_id,
            "name": run.request.name,
            "arn": self._run_arn(run),
            "createdBy": f"arn:aws:iam::{self._account}:root",
            "createdAt": run.created_at.timestamp(),
            "updatedAt": run.updated_at.timestamp(),
            "executionRole": run.request.execution_role,
            **({} if run.started_at is None else {"startedAt": run.started_at.timestamp()}),
            "state": run.state,
            "stateDetails": run.details,
            "releaseLabel": RELEASE,
        }

    def _describe(self, run: spark_jobs.LocalJobRun) -> dict[str, Any]:
        driver = {
            "entryPoint": run.request.entry_point,
            "entryPointArguments": list(run.request.arguments),
            "sparkSubmitParameters": run.request.spark_parameters,
        }
        return {
            **self._common(run),
            "jobRunId": run.id,
            "jobDriver": {"sparkSubmit": driver},
            "executionTimeoutMinutes": run.request.timeout_minutes,
            "mode": "BATCH",
        }

    def _run_arn(self, run: spark_jobs.LocalJobRun) -> str:
        return f"{self._arn}/jobruns/{run.id}"


def _job_request(request: Request) -> spark_jobs.JobRequest:
    try:
        return spark_jobs.JobRequest.model_validate_json(request.get_data())
    except ValidationError as exc:
        raise spark_jobs.JobRequestError(f"the request is not a StartJobRun of a Spark job ({exc})") from exc


def _date(request: Request, name: str) -> datetime | None:
    text = request.args.get(name)
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError as exc:
        raise spark_jobs.JobRequestError(f"{name} is not a date") from exc


def _json(status: int, body: dict[str, Any]) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")
