"""Each job run may write to its own folders of the record bucket alone."""

import fnmatch
import json
import uuid
from typing import Any

import pytest

from delegation.orchestration.job_runs import EmrServerless, JobConfiguration, folders_of, run_policy
from delegation.rewrites.task_type import WORKER, WORKER_ID

ROLE = "arn:aws-eu:iam::123456789012:role/job"
LONGEST_BUCKET = "b" * 63
# EMR Serverless API reference, "JobRunExecutionIamPolicy".
MOST_CHARACTERS = 2_048


def payload(**properties: str) -> str:
    return json.dumps({"common_payload": {}, "operation_parameters": {"properties": properties}})


class OneTask:
    """A task with an id and a payload."""

    def __init__(self, task_payload: str) -> None:
        self.task_id = str(uuid.uuid4())
        self.task_payload = task_payload


@pytest.mark.parametrize("text", [payload(), "not JSON", "[]", payload(engine="spark")])
def test_a_run_writes_to_the_folders_of_its_task(text: str) -> None:
    task: Any = OneTask(text)
    assert folders_of(task) == (task.task_id, f"results/{task.task_id}")


def test_a_run_that_executes_a_given_plan_writes_beside_it_too() -> None:
    task: Any = OneTask(payload(plan="0b1e/2/nonce"))
    assert folders_of(task) == (task.task_id, f"results/{task.task_id}", "0b1e")


def test_the_longest_policy_has_room() -> None:
    folders = (str(uuid.uuid4()), f"results/{uuid.uuid4()}", str(uuid.uuid4()), "lost-refs", "orphans")
    assert len(run_policy(ROLE, LONGEST_BUCKET, folders)) <= MOST_CHARACTERS


def test_only_the_folders_are_written() -> None:
    reading, writing = json.loads(run_policy(ROLE, "records", ("a", "results/a")))["Statement"]
    assert writing == {
        "Effect": "Allow",
        "Action": "s3:PutObject",
        "Resource": ["arn:aws-eu:s3:::records/a/*", "arn:aws-eu:s3:::records/results/a/*"],
    }
    assert "s3:PutObject" not in reading["Action"]
    assert not any("*" in action for action in reading["Action"])
    # A removal of orphan files reads every unfinished task (removal/orphans/claims.py).
    assert {"dynamodb:BatchGetItem", "dynamodb:Query"} <= set(reading["Action"])


class StartedRuns:
    """A boto3 client that records how job runs are started."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def start_job_run(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        return {"jobRunId": "run"}


def test_a_run_is_started_with_its_policy_where_the_bucket_is_known() -> None:
    client = StartedRuns()
    for bucket in ("records", None):
        configuration = JobConfiguration("app", ROLE, "s3://code/run_task.py", "", record_bucket=bucket)
        EmrServerless(client, "app", configuration).start("task-1", [], ("task",))
    first, second = client.requests
    assert json.loads(first["executionIamPolicy"]["policy"])["Statement"][1]["Resource"] == [
        "arn:aws-eu:s3:::records/task/*"
    ]
    assert "executionIamPolicy" not in second


def test_the_shared_worker_writes_to_the_folders_of_tasks_alone() -> None:
    """`?` is one character in a policy of IAM, as in a pattern of `fnmatch`."""
    for task_id in (WORKER_ID, str(uuid.uuid4())):
        assert any(fnmatch.fnmatchcase(task_id, folder) for folder in WORKER.folders)
        assert any(fnmatch.fnmatchcase(f"results/{task_id}", folder) for folder in WORKER.folders)
    for folder in ("kept", "lost-refs", "orphans", "results"):
        assert not any(fnmatch.fnmatchcase(folder, pattern) for pattern in WORKER.folders)
