"""The EMR Serverless endpoint: one job run per client token, states, cancelling, time-out, and a real Spark job."""

import json
import os
import stat
import uuid
from pathlib import Path

import pytest

from infra.local.backends import AwsKeys, client
from infra.local.emr import spark_jobs
from infra.local.emr.endpoint import EmrServerlessEndpoint
from infra.local.emr.spark_jobs import JobRequestError, LocalSparkJobs, SparkCommand

JOB = Path(__file__).parent / "fixtures" / "spark_job.py"
ROLE = "arn:aws:iam::123456789012:role/job"


class Emr:
    """The endpoint with a boto3 client."""

    def __init__(self, folder, *, minute_seconds=60.0, concurrency=2, python=None):
        self.folder = folder
        jobs = LocalSparkJobs(
            log_folder=folder / "emr",
            environment={"AWS_REGION": "us-east-1"},
            download=self._download,
            minute_seconds=minute_seconds,
            concurrency=concurrency,
            **({} if python is None else {"python": python}),
        )
        self.server = EmrServerlessEndpoint(jobs, region="us-east-1", account="123456789012").start()
        self.client = client("emr-serverless", self.server.url, AwsKeys("local", "local"))

    def start(self, token=None, *arguments, parameters="", entry_point=str(JOB), **options):
        driver = {"entryPoint": entry_point, "entryPointArguments": list(arguments)}
        if parameters:
            driver["sparkSubmitParameters"] = parameters
        return self.client.start_job_run(
            applicationId=self.server.application_id,
            clientToken=token or uuid.uuid4().hex,
            executionRoleArn=ROLE,
            jobDriver={"sparkSubmit": driver},
            **options,
        )["jobRunId"]

    def get(self, run):
        return self.client.get_job_run(applicationId=self.server.application_id, jobRunId=run)["jobRun"]

    def cancel(self, run):
        return self.client.cancel_job_run(applicationId=self.server.application_id, jobRunId=run)

    def until(self, run, *states):
        while (seen := self.get(run))["state"] not in states:
            assert seen["state"] not in spark_jobs.TERMINAL, seen
        return seen

    def stdout(self, run):
        return (self.folder / "emr" / run / "stdout").read_text()

    def close(self):
        self.client.close()
        self.server.stop()

    def _download(self, bucket, key, target):
        target.write_text(f"# {bucket}/{key}\n")


@pytest.fixture
def emr(tmp_path):
    emr = Emr(tmp_path)
    yield emr
    emr.close()


@pytest.fixture
def program(monkeypatch, tmp_path):
    """Replace spark-submit by a shell script, for tests that do not need Spark."""

    def program(script):
        home = tmp_path / "spark"
        (home / "bin").mkdir(parents=True)
        submit = home / "bin" / "spark-submit"
        submit.write_text(f"#!/bin/sh\n{script}\n")
        submit.chmod(submit.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(spark_jobs.pyspark, "__file__", str(home / "__init__.py"))

    return program


def test_one_client_token_is_one_job_run(emr, program):
    program("echo once")
    run = emr.start("t-1-1", "--task-id", "t-1", name="t-1-1")
    assert emr.start("t-1-1", "--task-id", "t-1", name="t-1-1") == run
    with pytest.raises(emr.client.exceptions.ConflictException):
        emr.start("t-1-1", "--task-id", "t-2", name="t-1-1")
    emr.until(run, "SUCCESS")
    assert emr.start("t-1-1", "--task-id", "t-1", name="t-1-1") == run
    assert emr.stdout(run) == "once\n"


def test_a_failed_job_names_its_log_folder(emr, program):
    program("echo 'secret text' >&2; exit 3")
    seen = emr.until(emr.start(), "FAILED")
    assert "ExitCode: 3" in seen["stateDetails"]
    assert "secret text" not in json.dumps(seen, default=str)
    assert (emr.folder / "emr" / seen["jobRunId"] / "stderr").read_text() == "secret text\n"


def test_cancelling_ends_the_whole_process_group(emr, program, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    program(f"exec > {tmp_path}/fifo; echo ready; sleep 1000 & sleep 1000")
    run = emr.start()
    with (tmp_path / "fifo").open("rb") as held_open_by_the_job:
        assert held_open_by_the_job.readline() == b"ready\n"
        seen = emr.until(run, "RUNNING")
        assert seen["createdAt"] <= seen["startedAt"] <= seen["updatedAt"]
        emr.cancel(run)
        assert held_open_by_the_job.read() == b""
    emr.until(run, "CANCELLED")
    with pytest.raises(emr.client.exceptions.ValidationException, match="terminal state CANCELLED"):
        emr.cancel(run)


def test_a_killed_job_has_failed(emr, program, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    program(f"echo $$ > {tmp_path}/fifo; exec sleep 1000")
    run = emr.start()
    with (tmp_path / "fifo").open() as pipe:
        os.kill(int(pipe.readline()), 9)
    assert "ExitCode: 137" in emr.until(run, "FAILED")["stateDetails"]


def test_a_job_that_exceeds_its_time_out_is_cancelled(tmp_path, program):
    program("exec sleep 1000")
    emr = Emr(tmp_path, minute_seconds=0.05)
    try:
        seen = emr.until(emr.start(executionTimeoutMinutes=2), "CANCELLED")
        assert "execution time-out of 2 min" in seen["stateDetails"]
    finally:
        emr.close()


def test_a_job_over_the_concurrency_limit_is_pending_and_can_be_cancelled(tmp_path, program):
    program("exec sleep 1000")
    emr = Emr(tmp_path, concurrency=1)
    try:
        first, second = emr.start(), None
        emr.until(first, "RUNNING")
        second = emr.start()
        emr.until(second, "PENDING")
        emr.cancel(second)
        emr.until(second, "CANCELLED")
        assert emr.get(first)["state"] == "RUNNING"
    finally:
        emr.close()


def test_listing_filters_by_state_and_has_pages(emr, program):
    program("exit 0")
    done = [emr.start(name=f"t-{n}") for n in range(3)]
    for run in done:
        emr.until(run, "SUCCESS")
    application = emr.server.application_id
    pages = emr.client.get_paginator("list_job_runs").paginate(
        applicationId=application, states=["SUCCESS"], PaginationConfig={"PageSize": 2}
    )
    listed = [run for page in pages for run in page["jobRuns"]]
    assert [run["id"] for run in listed] == done[::-1]
    assert listed[0]["name"] == "t-2"
    assert emr.client.list_job_runs(applicationId=application, states=["RUNNING", "PENDING"])["jobRuns"] == []
    newer = emr.client.list_job_runs(applicationId=application, createdAtAfter=listed[1]["createdAt"])["jobRuns"]
    assert done[0] not in {run["id"] for run in newer}


def test_an_entry_point_on_s3_is_downloaded(emr, program):
    program('eval "last=\\${$#}"; cat "$last"')
    run = emr.start(entry_point="s3://plans/code/run_task.py")
    emr.until(run, "SUCCESS")
    assert emr.stdout(run) == "# plans/code/run_task.py\n"


def test_an_entry_point_that_does_not_exist_fails_the_job(emr):
    seen = emr.until(emr.start(entry_point="/no/such/job.py"), "FAILED")
    assert "/no/such/job.py does not exist" in seen["stateDetails"]


def test_an_unknown_application_or_job_run_is_not_found(emr):
    assert emr.client.get_application(applicationId=emr.server.application_id)["application"]["state"] == "STARTED"
    with pytest.raises(emr.client.exceptions.ResourceNotFoundException):
        emr.client.get_application(applicationId="other")
    with pytest.raises(emr.client.exceptions.ResourceNotFoundException):
        emr.get("00abc")
    with pytest.raises(emr.client.exceptions.ValidationException, match="--conf has no value"):
        emr.start(parameters="--conf")


def test_parameters_are_parsed_as_in_emr():
    command = SparkCommand.parse(
        '--conf spark.emr-serverless.driverEnv.DELEGATION_PROPERTIES=\'{"a": "b c"}\''
        " --conf=spark.executorEnv.REALM=x=y"
        " --conf spark.emr-serverless.driverEnv.PYSPARK_PYTHON=./environment/bin/python"
        " --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python --conf spark.executor.cores=4"
        " --conf spark.archives=s3://b/env.tar.gz#environment --py-files lib.zip"
    )
    assert dict(command.environment) == {"DELEGATION_PROPERTIES": '{"a": "b c"}'}
    assert command.options == ("--conf", "spark.executorEnv.REALM=x=y", "--py-files", "lib.zip")
    assert command.archives == (("s3://b/env.tar.gz", "environment"),)


@pytest.mark.parametrize("parameters", ["--conf 'open", "--conf", "--conf spark.x"])
def test_invalid_parameters_are_refused(parameters):
    with pytest.raises(JobRequestError, match="sparkSubmitParameters"):
        SparkCommand.parse(parameters)


@pytest.mark.long
@pytest.mark.spark
def test_a_real_spark_job_runs_with_the_given_variables(emr):
    parameters = (
        "--conf spark.emr-serverless.driverEnv.DELEGATION_REALM=POLARIS"
        " --conf spark.executorEnv.DELEGATION_REALM=POLARIS"
        " --conf spark.emr-serverless.driverEnv.PYSPARK_PYTHON=./environment/bin/python"
    )
    run = emr.start("t-1-1", "--task-id", "t-1", name="t-1-1", parameters=parameters)
    emr.until(run, "SUCCESS")
    seen = json.loads(emr.stdout(run))
    assert seen["squares"] == [0, 1, 4, 9]
    assert seen["arguments"] == ["--task-id", "t-1"]
    assert (seen["realm"], seen["driver"]["DELEGATION_REALM"]) == ("POLARIS", "POLARIS")
    assert seen["driver"]["AWS_REGION"] == "us-east-1"
    assert seen["name"] == "t-1-1"
