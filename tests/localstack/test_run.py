"""The parts of the run that need no LocalStack: its relays and what it reports as missing."""

import socket
from contextlib import ExitStack

import pytest

from infra.package.parts import Processor
from tests.localstack.deploy import DeployedStack
from tests.localstack.evidence import Ran, missing, not_enough
from tests.localstack.relay import Relays
from tests.localstack.settings import processor_of


def test_a_relay_carries_both_directions_to_a_loopback_server():
    with ExitStack() as cleanup, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert Relays("127.0.0.2", cleanup).reach(f"http://127.0.0.1:{port}/x") == f"http://127.0.0.2:{port}/x"
        with socket.create_connection(("127.0.0.2", port)) as client:
            client.sendall(b"asked")
            client.shutdown(socket.SHUT_WR)
            accepted, _ = server.accept()
            with accepted:
                assert accepted.recv(64) == b"asked"
                assert accepted.recv(64) == b""
                accepted.sendall(b"answered")
            assert client.recv(64) == b"answered"


def test_without_another_address_servers_are_reached_as_they_are():
    with ExitStack() as cleanup:
        assert Relays("127.0.0.1", cleanup).reach("http://127.0.0.1:1/x") == "http://127.0.0.1:1/x"


def test_a_function_that_did_not_run_and_a_service_that_did_not_work_are_reported():
    assert missing({"api": 3, "sweeper": 0}, ("api", "sweeper", "acquire")) == ["sweeper", "acquire"]
    assert not_enough([Ran("S3", "3 receipts", True), Ran("SQS", "1 dead letters", False)]) == ["SQS: 1 dead letters"]


def test_the_one_resource_of_a_type_is_found_by_its_logical_id():
    types = {"FunctionsApiFunction1": "AWS::Lambda::Function", "FunctionsSweeperFunction2": "AWS::Lambda::Function"}
    stack = DeployedStack("Service", {}, {name: f"id of {name}" for name in types}, types, 1.0)
    assert stack.only("AWS::Lambda::Function", "FunctionsApi") == "id of FunctionsApiFunction1"
    with pytest.raises(LookupError, match="2 resources of type AWS::Lambda::Function"):
        stack.only("AWS::Lambda::Function")


@pytest.mark.parametrize(
    ("machine", "processor"), [("x86_64", Processor.X86_64), ("aarch64", Processor.ARM64), ("arm64", Processor.ARM64)]
)
def test_the_package_is_built_for_this_machine(machine, processor):
    assert processor_of(machine) is processor
