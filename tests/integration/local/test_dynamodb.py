"""Both local DynamoDBs keep every acknowledged conditional write while threads compete for one item."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.local.aws import dynamodb
from infra.local.errors import CannotStartError, UnavailableError
from infra.local.processes.programs import TetheredProcess, import_path
from tests.contract.task_tables import dynamodb_client


@pytest.fixture(params=["moto_dynamodb", pytest.param("dynamodb_local", marks=pytest.mark.dynamodb_local)])
def client(request):
    server = request.getfixturevalue(request.param)
    with contextlib.closing(dynamodb_client(server.url)) as client:
        yield client


def test_no_acknowledged_write_is_lost_when_threads_compete(client):
    table = f"race-{uuid.uuid4()}"
    client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.put_item(TableName=table, Item={"id": {"S": "x"}, "n": {"N": "0"}})

    def compare_and_set(_: int) -> int:
        current = client.get_item(TableName=table, Key={"id": {"S": "x"}}, ConsistentRead=True)["Item"]["n"]["N"]
        try:
            client.update_item(
                TableName=table,
                Key={"id": {"S": "x"}},
                UpdateExpression="SET n = :next",
                ConditionExpression="n = :current",
                ExpressionAttributeValues={":next": {"N": str(int(current) + 1)}, ":current": {"N": current}},
            )
        except client.exceptions.ConditionalCheckFailedException:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        acknowledged = sum(pool.map(compare_and_set, range(80)))
    final = client.get_item(TableName=table, Key={"id": {"S": "x"}}, ConsistentRead=True)["Item"]["n"]["N"]
    assert acknowledged >= 1
    assert int(final) == acknowledged


def test_without_java_the_reason_names_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UnavailableError, match="Java 17 is needed"):
        dynamodb.java()


def test_an_old_java_is_refused(monkeypatch, tmp_path):
    program = tmp_path / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UnavailableError, match="is Java 8"):
        dynamodb.java()


def test_without_maven_and_with_an_empty_cache_the_reason_names_maven(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UnavailableError, match="Maven is not installed"):
        dynamodb.fetch()


def test_a_failed_fetch_leaves_no_folder_of_jars(monkeypatch, tmp_path):
    maven = tmp_path / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] no such host'\nexit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(UnavailableError, match="no such host"):
        dynamodb.fetch()
    assert [path.name for path in (tmp_path / "cache/polaris-delegation/dynamodb-local").iterdir()] == ["fetch.lock"]


def test_a_home_that_cannot_be_written_is_not_needed(monkeypatch, tmp_path):
    """The demo ended with "Permission denied" for a user whose home is read-only."""
    maven = tmp_path / "mvn"
    program = 'for word; do case $word in -DoutputDirectory=*) mkdir "${word#*=}"; esac; done; echo "$@" > "$0.words"'
    maven.write_text(f"#!/bin/sh\n{program}\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(dynamodb, "ROOT", tmp_path / "check out")
    folder = dynamodb.fetch()
    assert folder.parent == tmp_path / "check out/.cache/dynamodb-local"
    assert "-Dmaven.repo.local=" in (tmp_path / "mvn.words").read_text()
    maven.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dynamodb.fetch() == folder, "it is fetched once, and a second start needs no network"


def test_a_program_that_ends_early_is_reported_with_its_last_output(tmp_path):
    process = TetheredProcess.start(["sh", "-c", "echo port in use; exit 3"], env=os.environ, log=tmp_path / "log")
    with pytest.raises(CannotStartError, match="status 3: port in use"):
        process.wait_until("the program", lambda: False, timeout_seconds=30)


def test_programs_and_their_children_end_with_a_killed_parent(tmp_path):
    """SIGKILL for the parent ends the process group, so the grandchild's output is closed."""
    script = """
import os, sys, pathlib
from infra.local.processes.programs import TetheredProcess
fifo, log = sys.argv[1:]
os.mkfifo(fifo)
grandchild = 'sh -c "echo ready; exec sleep 1000" > "$0"'
TetheredProcess.start(["sh", "-c", grandchild, fifo], env=os.environ, log=pathlib.Path(log))
print("started", flush=True)
sys.stdin.read()
"""
    fifo = tmp_path / "fifo"
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(fifo), str(tmp_path / "log")],
        env={**os.environ, "PYTHONPATH": import_path()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout.readline() == b"started\n"
        with Path(fifo).open("rb") as pipe:
            assert pipe.readline() == b"ready\n"
            parent.send_signal(signal.SIGKILL)
            # The read ends only when the last process of the group has closed its output.
            assert pipe.read() == b""
