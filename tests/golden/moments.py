"""Moments of a task's life: all that is stored and under way when one release ends and another continues.

`seen` returns a moment as JSON, `restored` makes a service of it. Between a release and its neighbour go: the items of
both tables, messages of the dispatch queue, inputs of executions and of their states, requests to start Spark jobs, and
the objects of the record bucket.
"""

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from delegation.orchestration.dispatch import Dispatcher, SqsDispatchQueue
from delegation.orchestration.failures import Step
from delegation.orchestration.job_runs import EmrServerless, ExternalJobRuns, JobConfiguration
from delegation.orchestration.steps import Steps
from delegation.polaris.answers import PolarisUnavailable
from delegation.removal.purge.run import purge_table
from delegation.removal.purge.task_type import TASK_TYPES
from delegation.storage.locations import parse
from delegation.storage.memory import Killed
from delegation.tasks.work.behaviors import Behaviors
from spark.run_task import _parser
from tests.contract.task_tables import moto, record_store, task_store
from tests.golden.stories import counted_ids, fill
from tests.kit.worlds.service import World
from tests.services import change_service

KEY = "key-1"
State = tuple[str, dict[str, Any]]
"""The name of a state by the answer that leads to it, and its input."""
ENDS = frozenset({"succeeded", "failed", "stop", "due", "continue"})
APPLICATION = JobConfiguration(
    "app", "arn:aws:iam::123456789012:role/job", "s3://artifacts/purge_table.py", "--conf a=b"
)


@dataclass
class Aws:
    """What the service calls beside its tables: SQS, Step Functions and EMR Serverless, which only remember."""

    messages: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    def send_message(self, *, QueueUrl: str, MessageBody: str, MessageGroupId: str = "") -> None:
        self.messages.append(MessageBody)

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> dict[str, Any]:
        return {"Attributes": {name: str(len(self.messages)) for name in AttributeNames}}

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> None:  # noqa: A002
        self.inputs.append(input)

    def start_job_run(self, **request: Any) -> dict[str, str]:
        self.jobs.setdefault(request["clientToken"], request)
        self.states.setdefault(request["clientToken"], "SUBMITTED")
        return {"jobRunId": request["clientToken"]}

    def get_job_run(self, *, applicationId: str, jobRunId: str) -> dict[str, Any]:
        return {"jobRun": {"jobRunId": jobRunId, "name": jobRunId, "state": self.states[jobRunId]}}

    def list_job_runs(self, **_arguments: Any) -> dict[str, Any]:
        active = {run: state for run, state in self.states.items() if state in {"SUBMITTED", "RUNNING"}}
        return {"jobRuns": [{"id": run, "name": run, "state": state} for run, state in active.items()]}

    def cancel_job_run(self, *, applicationId: str, jobRunId: str) -> None:
        self.states[jobRunId] = "CANCELLED"


class Service(World):
    """The world with the clients of AWS' services between its parts, and a state machine that runs them."""

    tables_of: tuple[str, str]
    client: Any

    def __init__(self, *stores: Any) -> None:
        """`stores` are one of tasks and one of idempotency records."""
        super().__init__(stores=stores)  # type: ignore[arg-type]
        self.aws = Aws()
        change_service(self.tasks, queue=SqsDispatchQueue(self.aws, "queue"))
        jobs = EmrServerless(self.aws, "app", APPLICATION)
        change_service(self.tasks, external_jobs=ExternalJobRuns(jobs))
        self.steps = Steps(self.tasks, TASK_TYPES, behaviors=Behaviors([self.behavior]), jobs=jobs)
        self.lake_at_first = set(fill(self).lake.uris())

    def dispatch(self) -> list[State]:
        """Start the executions of all messages, and return their first states."""
        dispatcher = Dispatcher(self.aws, "machine")
        bodies, self.aws.messages = self.aws.messages, []
        for body in bodies:
            dispatcher.start(body)
        inputs, self.aws.inputs = self.aws.inputs, []
        return [("acquire", json.loads(each)) for each in inputs]

    def step(self, state: State) -> State:
        """Run a state; what goes between two states is JSON."""
        name, event = state
        if name == "wait":
            self.clock.now = max(self.clock.now, datetime.fromisoformat(event["wait_until"]))
        if name == "heartbeat":
            self.run_jobs()
        answer = self._answer(name, Step.of(json.loads(json.dumps(event))))
        return answer["next"], answer

    def _answer(self, name: str, step: Step) -> dict[str, Any]:
        match name:
            case "acquire" | "wait":
                return self.steps.acquire(step, self.deadline())
            case "prepare":
                return self.steps.prepare(step, self.deadline())
            case "inline":
                return self.steps.run_inline(step, self.clock() + timedelta(minutes=15))
            case "spark" | "start-again":
                return self.steps.start_job(step)
            case "heartbeat":
                return self.steps.heartbeat(step)
            case "complete":
                return self.steps.complete(step)
            case "make-due":
                return self.steps.make_due(step)
            case other:
                raise AssertionError(other)

    def run_jobs(self) -> None:
        """Run what EMR Serverless was asked to: the job's own parser reads the arguments."""
        for run, request in self.aws.jobs.items():
            if self.aws.states[run] == "SUBMITTED":
                options = _parser().parse_args(request["jobDriver"]["sparkSubmit"]["entryPointArguments"])
                self.aws.states[run] = "FAILED"
                self.behavior.run_job(purge_table, options.task_id, options.attempt)
                self.aws.states[run] = "SUCCESS"

    def until(self, following: str, state: State | None = None) -> State:
        """Run an execution, by default that of the only message, until its answer leads to a state."""
        [reached] = [state] if state else self.dispatch()
        while reached[0] != following:
            assert reached[0] not in ENDS, reached
            reached = self.step(reached)
        return reached

    def resume(self, state: State | None) -> None:
        """Run everything to its end: the execution that is under way, messages, and what the sweeper finds."""
        under_way = [state] if state else []
        for _ in range(6):
            for each in [*under_way, *self.dispatch()]:
                reached = each
                while reached[0] not in ENDS:
                    reached = self.step(reached)
            under_way = []
            if not self.aws.messages and all(task.is_terminal for task in self.store.heads().tasks):
                return
            self.clock.advance(timedelta(minutes=20))
            self.sweep()

    def kill_at_delete(self, number: int) -> None:
        """Have the process die at a call that deletes."""
        usual, calls = self.objects.delete, iter(range(1, 1000))

        def delete(bucket: str, keys: Any) -> Any:
            if next(calls) == number:
                raise Killed("delete")
            return usual(bucket, keys)

        self.objects.delete = delete  # type: ignore[method-assign]

    def deleted(self) -> list[str]:
        """Return the paths of the lake that are gone."""
        return sorted(self.lake_at_first - set(self.lake.uris()))


Moment = Callable[[Service], State | None]


def queued(service: Service) -> None:
    """A request is accepted, its message is in the queue."""
    service.submit(service.identity("events"), KEY)


def started(service: Service) -> State:
    """The dispatcher has started the execution."""
    queued(service)
    return service.until("acquire")


def acquired(service: Service) -> State:
    """The attempt has begun, Prepare is next."""
    queued(service)
    return service.until("prepare")


def prepared(service: Service) -> State:
    """The inline engine is chosen, RunInline is next."""
    queued(service)
    return service.until("inline")


def killed(service: Service) -> State:
    """RunInline died after its plan and some marks; the state machine makes the task due."""
    queued(service)
    state = service.until("inline")
    service.kill_at_delete(3)
    try:
        service.step(state)
    except Killed:
        return "make-due", {**state[1], "failed": {"Error": "Lambda.Unknown", "Cause": "the process exited"}}
    raise AssertionError("the invocation was not killed")


def waiting(service: Service) -> State:
    """An attempt failed for the moment, the execution waits for the next one."""
    queued(service)
    service.tables.trouble = PolarisUnavailable("the catalog does not answer")
    state = service.until("wait")
    service.tables.trouble = None
    return state


def chosen(service: Service) -> State:
    """Spark is chosen, StartJob is next."""
    service.submit(service.identity("events", engine="spark"), KEY)
    return service.until("spark")


def job_started(service: Service) -> State:
    """EMR Serverless has the job, which has not begun; Heartbeat is next."""
    return service.until("heartbeat", chosen(service))


def job_killed(service: Service) -> State:
    """The job died after its plan and some marks; Heartbeat is next."""
    state = job_started(service)
    service.kill_at_delete(3)
    try:
        service.run_jobs()
    except Killed:
        return state
    raise AssertionError("the job was not killed")


def dry_run(service: Service) -> None:
    """A dry run has ended; that its plan is executed is accepted."""
    first = service.submit(service.identity("events", **{"dry-run": "true"}))
    service.until("succeeded")
    plan = service.tasks.reads.get(first.task_id).public()["plan_segments"][0]["id"]
    service.submit(service.identity("events", plan=plan), KEY)


def ended(service: Service) -> None:
    """A purge has ended; its answer is there for repeats."""
    queued(service)
    service.until("succeeded")


MOMENTS: dict[str, Moment] = {
    moment.__name__: moment
    for moment in (
        queued,
        started,
        acquired,
        prepared,
        killed,
        waiting,
        chosen,
        job_started,
        job_killed,
        dry_run,
        ended,
    )
}


@contextmanager
def service(client: Any) -> Iterator[Service]:
    """A service over tables of its own in DynamoDB."""
    with task_store(client) as store:
        made = Service(store, record_store(store))
        made.tables_of, made.client = (store.table, f"{store.table}-idempotency"), client
        yield made
        client.delete_table(TableName=f"{store.table}-idempotency")


def record(name: str, client: Any) -> dict[str, Any]:
    """Live a moment and record it."""
    with counted_ids(), service(client) as made:
        return seen(made, MOMENTS[name](made))


def seen(made: Service, state: State | None) -> dict[str, Any]:
    """Return all that a release leaves to the next one; binary objects are base64."""
    tasks, records = ([dict(sorted(item.items())) for item in _scan(made, table)] for table in made.tables_of)
    return {
        "now": made.clock.now.isoformat(),
        "next": state and state[0],
        "input": state and state[1],
        "messages": made.aws.messages,
        "jobs": made.aws.jobs,
        "job_states": made.aws.states,
        "tasks": sorted(tasks, key=json.dumps),
        "records": sorted(records, key=json.dumps),
        "objects": {key: base64.b64encode(data).decode() for key, data in sorted(made.plans.objects.items())},
        "deleted": made.deleted(),
    }


def restore(made: Service, moment: dict[str, Any]) -> State | None:
    """Put what was recorded into a new service, and return the state that comes next."""
    for table, items in zip(made.tables_of, (moment["tasks"], moment["records"]), strict=True):
        for item in items:
            made.client.put_item(TableName=table, Item=item)
    return surround(made, moment)


def surround(made: Service, moment: dict[str, Any]) -> State | None:
    """Restore what was recorded besides the tables, and return the state that comes next."""
    made.clock.now = datetime.fromisoformat(moment["now"])
    made.plans.objects.update({key: base64.b64decode(data) for key, data in moment["objects"].items()})
    made.aws.messages, made.aws.jobs, made.aws.states = moment["messages"], moment["jobs"], moment["job_states"]
    for uri in moment["deleted"]:
        found = parse(uri)
        del made.lake.objects[found.bucket, found.key]
    return (moment["next"], moment["input"]) if moment["next"] else None


def _scan(made: Service, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = made.client.scan(TableName=table)["Items"]
    return found


def main() -> None:
    """Read moments from standard input, continue each, and print what became of them (tests/golden/test_rollback)."""
    ends = {}
    for name, moment in json.load(sys.stdin).items():
        with moto() as client, service(client) as made:
            made.resume(restore(made, moment))
            ends[name] = [[task.status.value for task in made.store.heads().tasks], made.deleted()]
    sys.stdout.write(json.dumps(ends))


if __name__ == "__main__":
    main()
