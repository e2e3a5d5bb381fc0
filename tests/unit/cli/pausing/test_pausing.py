"""`delegation pause`, `resume`, `pauses` and `drain`, over the API and over the task table."""

import json

import pytest

from delegation.cli.doctor.service import paused
from delegation.cli.errors import CommandError
from delegation.cli.pausing import drain
from delegation.cli.tasks.why import explain
from delegation.tasks.stores.base import Create
from delegation.wire.operators import PauseList, PauseRequest, ShownPause
from delegation.wire.tasks import TaskRecord
from tests.kit.errors import coded
from tests.kit.tasks.builders import NOW, acquired, submitted
from tests.unit.cli.conftest import OPERATOR
from tests.unit.client.service import BASE, json_answer, record

PAUSE = f"{BASE}/v1/pause".partition(".test")[2]
RESUME = f"{BASE}/v1/resume".partition(".test")[2]
ONE = {
    "scope": "all", "realm": None, "table": None, "mode": "stop", "since": "2026-11-21T12:00:00Z",
    "by": {"client_id": "ops", "subject": "CN=ops"}, "reason": "Polaris is [bold]upgraded",
}  # fmt: skip


def test_a_pause_is_sent_with_its_reason_and_shown(run, service):
    service.answer("POST", PAUSE, json_answer(200, {"pauses": [ONE]}))
    done = run("pause", "--table", "lake.sales.orders", "--reason", "upgrade")
    assert done.exit_code == 0, done.output
    sent = json.loads(service.requests[-1].content)
    assert sent == {"scope": "table", "table": "lake.sales.orders", "mode": "stop", "reason": "upgrade"}
    assert "ops (CN=ops)" in done.stdout
    assert "Polaris is [bold]upgraded" in done.stdout
    assert "Nothing is paused" not in done.stdout


def test_json_has_the_services_members(run, service):
    service.answer("POST", RESUME, json_answer(200, {"pauses": []}))
    service.answer("GET", PAUSE, json_answer(200, {"pauses": [ONE]}))
    assert json.loads(run("resume", "--realm", "--json").stdout) == {"pauses": []}
    assert json.loads(service.requests[-1].content) == {"scope": "realm"}
    assert json.loads(run("pauses", "--json").stdout) == {"pauses": [ONE]}
    service.answer("GET", PAUSE, json_answer(200, {"pauses": []}))
    assert run("pauses").stdout == "Nothing is paused.\n"


def test_the_task_table_is_paused_with_the_operators_arn(run, store, stack):
    for words in (["--all"], ["--realm"], ["--table", "a.b"]):
        done = run("pause", *words, "--reason", "upgrade", "--direct", "--stack", str(stack), "--json")
        assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["pauses"]
    assert [(one["scope"], one["realm"], one["table"]) for one in found] == [
        ("all", None, None), ("realm", "POLARIS", None), ("table", None, "a.b"),
    ]  # fmt: skip
    assert found[0]["by"] == {"client_id": "aws", "subject": OPERATOR}
    for words in (["resume"], ["resume", "--realm"], ["resume", "--table", "a.b"]):
        done = run(*words, "--direct", "--stack", str(stack), "--json")
    assert json.loads(done.stdout) == {"pauses": []}


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--realm", "--table", "a.b", "--reason", "upgrade"], "--all"),
        (["--all", "--realm", "--reason", "upgrade"], "--all"),
        (["--reason", "upgrade"], "--all"),
        (["--all"], "--reason"),
        (["--all", "--reason", " "], "--reason"),
    ],
)
def test_a_pause_needs_one_scope_and_a_reason(run, service, words, option):
    """Without words it stopped all work, and nobody knew why."""
    done = run("pause", *words)
    assert done.exit_code == 2
    assert option in done.output
    assert service.requests == []


class DrainingTasks:
    """Pauses, tasks and time for a drain: `held` is how many tasks run at each look."""

    def __init__(self, *held):
        self.held, self.time, self.asked, self.reports = list(held), 0.0, [], []

    def pause(self, wanted):
        self.asked.append(wanted)
        return PauseList.model_validate({"pauses": [{**ONE, "mode": "drain"}]})

    def found(self, _wanted, *, limit, cursor=None):
        count = self.held.pop(0) if len(self.held) > 1 else self.held[0]
        return type("Page", (), {"tasks": [TaskRecord.of(record())] * count})

    def sleep(self, seconds):
        self.time += seconds

    def drain(self, timeout=3600.0):
        return drain(
            self, self, reason="upgrade", timeout_seconds=timeout, report=self.reports.append,
            now=lambda: self.time, sleep=self.sleep,
        )  # fmt: skip


def test_a_drain_ends_when_nothing_has_run_for_as_long_as_a_process_may_not_know_it():
    site = DrainingTasks(2, 1, 0, 0, 1, 0)
    assert site.drain().pauses[0].mode == "drain"
    assert site.asked == [PauseRequest(reason="upgrade", mode="drain")]
    assert site.time == 50.0  # the last task that began was over at 25 s
    assert [len(held) for held in site.reports[:5]] == [2, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("held", "timeout", "reason"), [(1, 60, "1 task still runs"), (0, 5, "processes may not know of it yet")]
)
def test_a_drain_that_takes_too_long_stays_on(held, timeout, reason):
    with pytest.raises(CommandError, match=reason, check=coded("TASKS_STILL_RUN")):
        DrainingTasks(held).drain(timeout=timeout)


def test_a_drain_waits_for_the_tasks_of_the_table(run, store, stack):
    store.apply(Create(acquired(submitted()).evolve(version=1)))
    done = run("drain", "--direct", "--stack", str(stack), "--timeout", "0", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stderr)["error_code"] == "TASKS_STILL_RUN"


def why(task, **pause):
    return explain(TaskRecord.of(record(**task)), NOW, [ShownPause.model_validate({**ONE, **pause})])


@pytest.mark.parametrize(
    ("status", "mode", "says"),
    [
        ("RUNNING", "stop", "Paused by ops 0.0 s ago (Polaris is [bold]upgraded): the holder"),
        ("RUNNING", "drain", "Drained by ops"),
        ("SUBMITTED", "stop", "Nothing until the work is resumed"),
        ("RETRY_SCHEDULED", "drain", "Nothing until the work is resumed"),
    ],
)
def test_why_says_that_a_task_is_paused(status, mode, says):
    found = why({"status": status}, mode=mode)
    assert found.next.startswith(says)
    assert "delegation resume" in found.advice


def test_why_leaves_out_a_pause_of_another_table_and_of_what_has_ended():
    assert "resume" not in why({"status": "SUBMITTED"}, scope="table", table="other.t").advice
    assert "resume" not in why({"status": "SUCCESS"}).advice
    table = TaskRecord.of(record()).table
    assert "--table" in why({"status": "SUBMITTED"}, scope="table", table=table).advice


def test_the_doctor_names_each_pause_and_how_to_end_it():
    found = paused(ONE)
    assert (found.name, found.ok) == ("paused", False)
    assert found.fix.endswith("delegation resume.")
    assert paused({**ONE, "scope": "table", "table": "a.b"}).fix.endswith("--table a.b.")
