"""`delegation worker` refuses invalid settings before it leases a task."""

import contextlib
import json
import subprocess
import sys
import threading
from datetime import timedelta

import pytest

from delegation.cli.worker import BadSettings, read_properties
from delegation.rewrites.runtimes import JARS
from delegation.rewrites.worker import SessionLost, SharedSession, WorkerLimits
from delegation.tasks.work.worker import Worker, WorkerSettings
from delegation.wiring.worker import added_worker, spark_worker
from tests.paths import ROOT


def refusal_of(run, *words):
    """Return what a worker that cannot start says, on one line."""
    result = run("worker", *words)
    assert result.exit_code == 2
    return " ".join(result.stderr.split())


@pytest.fixture
def _deployed(monkeypatch):
    """The variables of a worker of every task type."""
    for name in ("TASKS_TABLE", "IDEMPOTENCY_TABLE", "REFERENCES_TABLE", "PLAN_BUCKET", "POLARIS_SECRET_ARN"):
        monkeypatch.setenv(f"DELEGATION_{name}", "named")
    monkeypatch.setenv("DELEGATION_POLARIS_URL", "http://127.0.0.1:9/api/catalog")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("delegation.task.lease.lost-timeout-duration=soon", "delegation.task.lease.lost-timeout-duration"),
        ("delegation.retry.default.max-attempts=-1", "delegation.retry.default.max-attempts"),
        ("delegation.retry.default.color: red", "delegation.retry.default.color"),
        ('{"delegation.unknown": "1"}', "delegation.unknown"),
    ],
)
def test_an_invalid_property_is_named_with_exit_status_2(run, tmp_path, line, name):
    path = tmp_path / "service.properties"
    path.write_text(f"{line}\n", encoding="utf-8")
    assert name in refusal_of(run, "--properties", str(path))


@pytest.mark.parametrize("name", ["DELEGATION_PROPERTEIS", "DELEGATION_PROPERTIE", "delegation_properties"])
def test_a_misspelled_variable_of_the_limits_is_named(run, monkeypatch, name):
    monkeypatch.delenv("DELEGATION_PROPERTIES", raising=False)
    monkeypatch.setenv(name, '{"delegation.expiry.least-snapshots": "100"}')
    result = run("worker", "--json")
    assert (result.exit_code, json.loads(result.stderr)["error_code"]) == (2, "BAD_SETTINGS")
    assert f"{name} is not a variable of the service; did you mean DELEGATION_PROPERTIES?" in result.stderr


def test_a_missing_variable_is_named(run, monkeypatch):
    monkeypatch.delenv("DELEGATION_TASKS_TABLE", raising=False)
    assert "DELEGATION_TASKS_TABLE" in refusal_of(run)
    assert json.loads(run("worker", "--json").stderr)["error_code"] == "BAD_SETTINGS"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--tasks-at-once", "8"], "--tasks-at-once"),
        (["--idle", "5m"], "--idle"),
        (["--engine", "spark", "--idle", "0s"], "--idle"),
        (["--engine", "spark", "--budget", "-1h"], "--budget"),
        (["--engine", "spark", "--tasks-at-once", "0"], "--tasks-at-once"),
        (["--engine", "sparks"], "--engine"),
    ],
)
def test_an_option_that_the_worker_cannot_follow_is_named(run, words, named):
    assert named in refusal_of(run, *words)


@pytest.mark.usefixtures("_deployed")
@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("BEHAVIORS", "nowhere.at_all:behaviors", "nowhere.at_all:behaviors"),
        ("EMR_APPLICATION_ID", "x", "DELEGATION_EMR_JOB_ROLE_ARN"),
    ],
)
def test_a_behavior_that_cannot_be_loaded_and_a_missing_job_setting_are_named(run, monkeypatch, variable, value, named):
    monkeypatch.setenv(f"DELEGATION_{variable}", value)
    assert named in refusal_of(run)


def test_both_formats_have_the_same_meaning(tmp_path):
    lines, document = tmp_path / "a.properties", tmp_path / "a.json"
    lines.write_text("# comment\n! too\n\na.b = 1h\nc.d: x=y\n", encoding="utf-8")
    document.write_text('{"a.b": "1h", "c.d": "x=y"}', encoding="utf-8")
    assert read_properties(lines) == read_properties(document) == {"a.b": "1h", "c.d": "x=y"}


@pytest.mark.parametrize("text", ["no value here", "{broken", '{"a": 1}'])
def test_a_file_that_is_neither_is_refused(tmp_path, text):
    path = tmp_path / "a"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadSettings, match=str(path)):
        read_properties(path)


@pytest.fixture
def _only_the_task_table(monkeypatch):
    for name in ("IDEMPOTENCY_TABLE", "REFERENCES_TABLE", "PLAN_BUCKET", "POLARIS_SECRET_ARN", "POLARIS_URL", "REALM"):
        monkeypatch.delenv(f"DELEGATION_{name}", raising=False)
    monkeypatch.setenv("DELEGATION_TASKS_TABLE", "tasks")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.mark.usefixtures("_only_the_task_table")
def test_a_worker_for_added_behaviors_alone_needs_the_task_table_only(monkeypatch):
    monkeypatch.setenv("DELEGATION_BEHAVIORS", "tests.unit.wiring.example_behaviors:behaviors")
    _, added = added_worker(WorkerSettings(owner="w"), threading.Event())
    assert set(added._behaviors) == {"SHOUT", "ONCE", "WHOLE"}
    added._tasks.reads.store.dynamodb.client.close()


@pytest.mark.usefixtures("_only_the_task_table")
def test_a_worker_for_added_behaviors_alone_runs_until_it_is_stopped(run, monkeypatch):
    monkeypatch.setenv("DELEGATION_BEHAVIORS", "tests.unit.wiring.example_behaviors")
    monkeypatch.setattr(Worker, "run", lambda _self: None)
    assert run("worker", "--added-only").exit_code == 0
    monkeypatch.delenv("DELEGATION_BEHAVIORS")
    assert "DELEGATION_BEHAVIORS" in refusal_of(run, "--added-only")


@pytest.mark.usefixtures("_only_the_task_table")
def test_a_worker_logs_an_item_that_fails_once_and_as_json(monkeypatch):
    monkeypatch.setenv("DELEGATION_BEHAVIORS", "tests.unit.wiring.example_behaviors")
    code = """
import sys
from delegation.cli.main import main
from delegation.items import each_item
from delegation.tasks.work.worker import Worker
Worker.run = lambda self: list(each_item(["an item"], lambda item: 1 / 0, name="a.loop"))
sys.argv = ["delegation", "worker", "--added-only"]
main()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    logged = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [one["item"] for one in logged if one.get("loop") == "a.loop"] == ["an item"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--idle", "5m"], "need --engine spark"),
        (["--budget", "5m"], "need --engine spark"),
        (["--engine", "spark", "--idle", "soon"], "--idle:"),
        (["--engine", "spark", "--added-only"], "cannot be combined with --engine spark"),
    ],
)
@pytest.mark.usefixtures("_only_the_task_table")
def test_what_only_one_kind_of_worker_has_is_refused_for_another(run, monkeypatch, words, reason):
    monkeypatch.setenv("DELEGATION_BEHAVIORS", "tests.unit.wiring.example_behaviors")
    assert reason in refusal_of(run, *words)


class Sessions:
    """What `delegation worker --engine spark` makes of its options, without Spark."""

    def __init__(self, ending=None):
        self.ending = ending
        self.limits = self.is_open = None

    @contextlib.contextmanager
    def made(self, settings, limits, _stop):
        self.limits, self.is_open = limits, True
        try:
            yield None, self
        finally:
            self.is_open = False

    owner = "w"

    def stop(self): ...

    def run(self):
        assert self.is_open
        if self.ending is not None:
            raise self.ending


@pytest.mark.usefixtures("_only_the_task_table")
def test_a_worker_with_a_session_gets_its_limits_and_closes_the_session(run, monkeypatch):
    sessions = Sessions()
    monkeypatch.setattr("delegation.cli.worker.spark_worker", sessions.made)
    assert run("worker", "--engine", "spark", "--tasks-at-once", "3", "--idle", "5m", "--budget", "8h").exit_code == 0
    assert sessions.limits == WorkerLimits(3, idle=timedelta(minutes=5), budget=timedelta(hours=8))
    assert sessions.is_open is False
    assert run("worker", "--engine", "spark").exit_code == 0
    assert sessions.limits == WorkerLimits(4)


@pytest.mark.usefixtures("_only_the_task_table")
def test_a_worker_ends_with_status_1_that_lost_its_session(run, monkeypatch):
    monkeypatch.setattr("delegation.cli.worker.spark_worker", Sessions(SessionLost("the session ended")).made)
    assert run("worker", "--engine", "spark").exit_code == 1


@pytest.mark.usefixtures("_only_the_task_table")
def test_a_worker_with_a_session_needs_spark(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    for name in [
        name for name in sys.modules if name.startswith("delegation.rewrites.") and name.endswith((".job", ".spark"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    assert "[spark]" in refusal_of(run, "--engine", "spark")


@pytest.mark.usefixtures("_deployed")
def test_a_worker_with_a_session_leases_rewrites_alone_each_under_a_name_of_its_own(monkeypatch):
    asked = {}

    @contextlib.contextmanager
    def session(**settings):
        asked.update(settings)
        yield SharedSession(None, lambda: True)

    monkeypatch.setattr("delegation.rewrites.job.shared_session", session)
    stop = threading.Event()
    with spark_worker(WorkerSettings(owner="w"), WorkerLimits(2), stop) as (deployed, shared):
        assert [one.owner for one in shared._workers] == ["w/1", "w/2"]
        assert shared.owner == "w"
        for one in shared._workers:
            assert set(one._behaviors) == {"TABLE_COMPACTION", "TABLE_REWRITE_MANIFESTS"}
            assert one._stop is stop
            assert set(one._admission._engines) == {"shared-worker", "spark"}
            assert {type(behavior._made.session) for behavior in one._behaviors.values()} == {SharedSession}
        deployed.tasks.reads.store.dynamodb.client.close()
    assert asked == {"spark.jars.packages": ",".join(JARS)}
