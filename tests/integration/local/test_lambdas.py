"""Lambda on one machine: isolation, concurrency, time-outs and error payloads as in AWS."""

import dataclasses
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.local.lambdas.functions import (
    PAYLOAD_LIMIT_BYTES,
    FunctionSpec,
    FunctionUnknownError,
    LambdaPool,
    PayloadTooLargeError,
)

HANDLERS = Path(__file__).parent / "fixtures"


@pytest.fixture
def pool(tmp_path):
    pool = LambdaPool(log_folder=tmp_path / "logs")
    yield pool
    pool.stop()


def deploy(pool, handler, *, timeout_seconds=30.0, concurrency=4, **environment):
    module, _, name = f"local_handlers.{handler}".rpartition(".") if "." not in handler else handler.rpartition(".")
    spec = FunctionSpec(
        name=name,
        handler=f"{module}.{name}",
        timeout_seconds=timeout_seconds,
        memory_mb=512,
        environment={"PYTHONPATH": str(HANDLERS), **environment},
        concurrency=concurrency,
    )
    return pool.add(spec)


def call(function, event):
    invocation = function.invoke(json.dumps(event).encode())
    return invocation.error, json.loads(invocation.payload)


def test_an_event_and_its_answer_keep_every_digit_and_character(pool):
    event = {"snapshot-id": 9007199254740993, "text": "ü\u2028\U0001f9ca", "nested": [1.5, None, True]}
    assert call(deploy(pool, "echo"), event) == (None, event)


def test_a_worker_gets_only_the_given_variables_and_those_of_lambda(pool, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SUPERVISOR", "x")
    function = deploy(pool, "about", DELEGATION_REALM="POLARIS", AWS_REGION="eu-west-1")
    _, seen = call(function, {})
    names = set(seen["environment"]) - {"LC_CTYPE"}
    assert {name for name in names if not name.startswith(("AWS_LAMBDA_", "AWS_EXECUTION_ENV"))} == {
        "PATH",
        "LANG",
        "TZ",
        "PYTHONPATH",
        "_HANDLER",
        "DELEGATION_REALM",
        "AWS_REGION",
    }
    assert seen["environment"]["AWS_LAMBDA_FUNCTION_NAME"] == "about"


def test_the_context_is_complete(pool):
    function = deploy(pool, "about", timeout_seconds=25)
    invocation = function.invoke(b"{}")
    seen = json.loads(invocation.payload)
    assert seen["request_id"] == invocation.request_id
    assert seen["arn"] == "arn:aws:lambda:us-east-1:123456789012:function:about"
    assert (seen["function_name"], seen["memory"]) == ("about", "512")
    assert 0 < seen["remaining"] <= 25_000


def test_a_warm_worker_is_reused(pool):
    function = deploy(pool, "about")
    assert call(function, {})[1]["pid"] == call(function, {})[1]["pid"]
    assert function.workers == 1


def test_invocations_run_in_parallel_up_to_the_limit(pool, tmp_path):
    place = tmp_path / "meeting"
    place.mkdir()
    function = deploy(pool, "meet", concurrency=3)
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda _: call(function, {"place": str(place), "expected": 3}), range(3)))
    assert len({pid for _, pid in answers}) == 3
    # All files exist already, so six more callers share the three workers.
    with ThreadPoolExecutor(6) as threads:
        again = list(threads.map(lambda _: call(function, {"place": str(place), "expected": 3}), range(6)))
    assert {pid for _, pid in again} <= {pid for _, pid in answers}
    assert function.workers == 3


def test_an_update_replaces_idle_workers_and_lets_a_running_invocation_end(pool, tmp_path):
    about = deploy(pool, "about", RELEASE="1")
    former = call(about, {})[1]
    about.update(dataclasses.replace(about.spec, environment={**about.spec.environment, "RELEASE": "2"}))
    latter = call(about, {})[1]
    assert (former["environment"]["RELEASE"], latter["environment"]["RELEASE"]) == ("1", "2")
    assert about.pids() == {latter["pid"]}
    place = tmp_path / "meeting"
    place.mkdir()
    meet = deploy(pool, "meet")
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(call, meet, {"place": str(place), "expected": 2})
        while not list(place.iterdir()):
            time.sleep(0.01)
        assert meet.pids(busy=True) == meet.pids()
        meet.update(meet.spec)
        (place / "the other").touch()
        error, _ = running.result()
    assert error is None
    assert meet.pids() == frozenset()


def test_an_exception_becomes_a_function_error(pool):
    error, payload = call(deploy(pool, "fail"), {"message": "table is locked"})
    assert error == "Unhandled"
    assert (payload["errorType"], payload["errorMessage"]) == ("TableLockedError", "table is locked")
    assert "raise TableLockedError" in payload["stackTrace"][-1]


def test_a_function_is_killed_with_its_children_at_its_time_out(pool, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    function = deploy(pool, "hang", timeout_seconds=1)
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(call, function, {"fifo": str(tmp_path / "fifo")})
        with (tmp_path / "fifo").open("rb") as held_open_by_the_child:
            assert held_open_by_the_child.read() == b""
        error, payload = answer.result()
    assert error == "Unhandled"
    assert payload["errorType"] == "Sandbox.Timedout"
    assert re.fullmatch(r"RequestId: [0-9a-f-]{36} Error: Task timed out after 1\.00 seconds", payload["errorMessage"])
    assert function.workers == 0
    assert "Task timed out after 1.00 seconds" in function.log.read_text()


def test_a_worker_that_exits_is_reported_and_replaced(pool):
    function = deploy(pool, "leave")
    for status in (1, 7):
        error, payload = call(function, {"status": status})
        assert error == "Unhandled"
        assert payload["errorType"] == "Runtime.ExitError"
        assert payload["errorMessage"].endswith(f"Runtime exited with error: exit status {status}")


def test_a_module_that_cannot_be_imported_is_reported_to_every_caller(pool):
    function = deploy(pool, "broken_handler.handler")
    for _ in range(2):
        error, payload = call(function, {})
        assert error == "Unhandled"
        assert payload["errorType"] == "Runtime.ImportModuleError"
        assert "a_module_that_does_not_exist" in payload["errorMessage"]


def test_an_answer_that_is_not_json_is_a_marshal_error(pool):
    error, payload = call(deploy(pool, "unserializable"), {})
    assert (error, payload["errorType"]) == ("Unhandled", "Runtime.MarshalError")


def test_requests_and_answers_over_six_megabytes_are_refused(pool):
    function = deploy(pool, "large")
    with pytest.raises(PayloadTooLargeError):
        function.invoke(b'"' + b"x" * PAYLOAD_LIMIT_BYTES + b'"')
    error, payload = call(function, {"size": PAYLOAD_LIMIT_BYTES})
    assert (error, payload["errorType"]) == ("Unhandled", "Function.ResponseSizeTooLarge")
    error, payload = call(function, {"size": 5_000_000})
    assert (error, len(payload)) == (None, 5_000_000)


def test_what_a_function_prints_is_in_its_log(pool):
    function = deploy(pool, "print_text")
    invocation = function.invoke(b'{"text": "three files deleted"}')
    lines = function.log.read_text().splitlines()
    assert lines[0] == f"START RequestId: {invocation.request_id} Version: $LATEST"
    assert "three files deleted" in lines
    assert lines[-2] == f"END RequestId: {invocation.request_id}"


def test_stopping_the_pool_ends_a_running_invocation(pool, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    function = deploy(pool, "hang")
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(call, function, {"fifo": str(tmp_path / "fifo")})
        with (tmp_path / "fifo").open("rb") as held_open_by_the_child:
            pool.stop()
            assert held_open_by_the_child.read() == b""
        error, payload = answer.result()
    assert (error, payload["errorType"]) == ("Unhandled", "Runtime.ExitError")


def test_an_unknown_function_is_named(pool):
    with pytest.raises(FunctionUnknownError, match="unknown"):
        pool.invoke("unknown", b"{}")
