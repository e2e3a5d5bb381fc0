"""The local stack as a process: a second one beside it, and its end by signals."""

import json
import os
import signal
import socket
import sys

import pytest

from tests.integration.local.stack_process import StackProcess, all_ended, descendants, edge_of, token, watch

pytestmark = [
    pytest.mark.long,
    pytest.mark.stack,
    pytest.mark.skipif(sys.platform != "linux", reason="reads processes from /proc"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    process = StackProcess(tmp_path_factory.mktemp("stack") / "state")
    watched = {}
    try:
        process.ready()
        watched = watch(descendants(process.pid))
        yield process
    finally:
        status = process.end(signal.SIGTERM)
    # The stack cannot be shared by the tests and ended in one of them.
    assert status == 0
    assert watched
    assert all_ended(watched, within_seconds=30)
    assert not process.path.exists()


@pytest.fixture
def stack(running):
    return running.ready()


@pytest.fixture
def edge(stack):
    with edge_of(stack) as client:
        yield client


def given(stack):
    """Options and variables with which a stack uses Polaris, S3 and DynamoDB of another one, and starts sooner."""
    client_id, _, secret = stack["polaris_credential"].partition(":")
    options = (
        *("--polaris-url", stack["polaris_url"], "--polaris-client-id", client_id),
        *("--warehouse", stack["warehouse"]),
        *("--s3-endpoint", stack["s3_endpoint"], "--dynamodb-endpoint", stack["dynamodb_endpoint"]),
    )
    return options, {"DELEGATION_POLARIS_CLIENT_SECRET": secret}


@pytest.fixture(scope="module", params=["given parts", "parts of its own"])
def second(request, running, tmp_path_factory):
    options, env = given(running.ready()) if request.param == "given parts" else ((), {})
    process = StackProcess(tmp_path_factory.mktemp("second") / "state", "--json", *options, env=env)
    try:
        process.ready()
        yield process
    finally:
        process.end(signal.SIGKILL)


@pytest.mark.parametrize("second", ["parts of its own"], indirect=True)
def test_a_second_stack_runs_in_parallel(stack, edge, second):
    other = second.ready()
    addresses = {other[name] for name in other if name.endswith(("_url", "_endpoint"))} - {None}
    assert len(addresses) > 3
    assert addresses.isdisjoint(stack.values())
    # One stack refuses the tokens of another.
    answer = edge.get("/v1/config", headers={"Authorization": f"Bearer {token(other)}"})
    assert answer.status_code in {401, 403}
    ready = json.loads(second.output.splitlines()[0])
    assert ready["stack_json"] == str(second.path)


def test_the_processes_of_a_killed_stack_end_and_its_folder_can_be_used_again(stack, edge, second):
    watched = watch(descendants(second.pid))
    second.end(signal.SIGKILL)
    assert all_ended(watched, within_seconds=30)
    assert edge.get("/v1/config", headers={"Authorization": f"Bearer {token(stack)}"}).status_code == 200

    options, env = given(stack)
    again = StackProcess(second.state_dir, *options, env=env, in_background=True)
    try:
        assert_uses(again.ready(), stack)
        watched = watch(descendants(again.pid))
    finally:
        status = again.end(signal.SIGINT)
    assert status == 0
    assert all_ended(watched, within_seconds=30)


def assert_uses(other, stack):
    """The stack `other` works with the given Polaris, S3 and DynamoDB of `stack`."""
    shared = ("polaris_url", "polaris_credential", "warehouse", "s3_endpoint", "dynamodb_endpoint")
    assert {name: other[name] for name in shared} == {name: stack[name] for name in shared}
    with edge_of(other) as edge:
        url = f"/v1/tasks/{os.urandom(16).hex()}"
        answer = edge.get(url, headers={"Authorization": f"Bearer {token(other)}"})
    assert answer.status_code in {400, 404}


def test_a_port_in_use_is_reported_and_every_process_ends(stack, tmp_path):
    options, env = given(stack)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        process = StackProcess(tmp_path / "state", "--port", str(port), *options, env=env)
        assert process.wait() == 1
    assert f"port {port} cannot be used" in process.output
    assert not process.path.exists()


def test_without_java_and_maven_moto_provides_dynamodb_and_the_summary_has_the_reason(tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    environment = {"PATH": str(empty), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment["JAVA_HOME"] = ""
    process = StackProcess(tmp_path / "state", env=environment)
    try:
        stack = process.ready()
        assert stack["dynamodb_endpoint"] == stack["aws_endpoint"]
        assert "Java is not installed" in process.output
    finally:
        process.end(signal.SIGTERM)
