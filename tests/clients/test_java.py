"""The example of docs/java.md: compiled with the generated client, and run against the front of a local stack."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from delegation.client import ClientSettings, DelegationClient, PurgeRequest, TableIdentifier
from infra.local.identities import CertificateAuthority
from tests.clients.programs import OPENAPI, built, program, run
from tests.integration.local.stack_process import StackProcess
from tests.paths import ROOT
from tests.unit.repository.test_java_page import keystore_commands

pytestmark = [pytest.mark.long, pytest.mark.stack, pytest.mark.timeout(1200)]
MAIN = "com.example.delegation.Main"
PASSWORD = "changeit"


@dataclass(frozen=True, slots=True)
class Example:
    """The compiled example, with a running stack that it calls."""

    folder: Path
    stack: StackProcess

    def run(self, *words: str | Path, key_store: str = "client.p12") -> subprocess.CompletedProcess[str]:
        """Run `begin` or `finish` with the stack's certificates, and the words that follow theirs."""
        step, *rest = words
        classes = f"{self.folder / 'target/classes'}:{self.folder / 'target/lib'}/*"
        stores = key_store, "trust.p12"
        return run(program("java"), "-cp", classes, MAIN, step, self.stack.path, *stores, *rest, cwd=self.folder)

    def dropped(self, intent: str) -> tuple[str, str, int]:
        """Finish a drop; return its task, the status and the number of files."""
        done = self.run("finish", intent)
        assert done.returncode == 0, done.stderr
        task_id, status, files = done.stdout.split()
        return task_id, status, int(files)


@pytest.fixture
def client(example: Example, monkeypatch: pytest.MonkeyPatch) -> Iterator[DelegationClient]:
    monkeypatch.setenv("DELEGATION_STACK", str(example.stack.path))
    with DelegationClient.connect(ClientSettings.read()) as opened:
        yield opened


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    maven = program("mvn")
    folder = tmp_path_factory.mktemp("java") / "example"
    shutil.copytree(ROOT / "docs" / "java", folder)
    built(maven, "-q", "-B", f"-Ddelegation.api={OPENAPI}", "package", cwd=folder)
    stack = StackProcess(folder / "state", "--sweep-seconds", "2")
    try:
        found = stack.ready()
        files = {"alice.pem": "client_cert", "alice.key": "client_key", "ca.pem": "ca_cert"}
        for name, setting in files.items():
            shutil.copy(found[setting], folder / name)
        for command in keystore_commands():
            built("bash", "-c", command, cwd=folder)
        built(ROOT / ".venv" / "bin" / "delegation", "local", "tables", "--stack", stack.path, cwd=folder)
        yield Example(folder, stack)
    finally:
        stack.end(signal.SIGTERM)


def listed(client: DelegationClient, table: str) -> list[str]:
    return [task.task_id for task in client.list(table=f"lake.shop.{table}")]


def test_a_table_is_purged_and_then_dropped_and_a_repeat_gets_the_same_answer(example):
    assert example.run("begin", "orders.json", "lake.shop.orders").returncode == 0
    first = example.dropped("orders.json")
    assert first[1:] == ("COMPLETED_SUCCESS", 42)
    # The process ended after the drop, before it wrote that down: it begins where it was.
    assert example.dropped("orders.json") == first
    gone = example.run("begin", "again.json", "lake.shop.orders")
    assert "NoSuchTable" in gone.stderr


def test_a_caller_that_ended_between_purge_and_drop_drops_the_entry(example, client):
    assert example.run("begin", "events.json", "lake.shop.events").returncode == 0
    purge = PurgeRequest(realm="POLARIS", identifier=TableIdentifier("lake", ("shop",), "events"))
    purged = client.wait(client.submit(purge).delegation_task_id, timeout_seconds=120)
    assert purged.succeeded
    # The entry is still there, with a metadata file that is gone.
    assert "MetadataMissing" in example.run("begin", "late.json", "lake.shop.events").stderr
    assert example.dropped("events.json")[1:] == ("COMPLETED_SUCCESS", purged.files_deleted)
    assert "NoSuchTable" in example.run("begin", "late.json", "lake.shop.events").stderr


def test_a_refusal_is_named_and_the_table_stays(example):
    assert example.run("begin", "customers.json", "lake.shop.customers").returncode == 0
    intent = json.loads((example.folder / "customers.json").read_text(encoding="utf-8"))
    other = {**intent, "table": {**intent["table"], "uuid": "00000000-0000-4000-8000-000000000000"}}
    (example.folder / "other.json").write_text(json.dumps({**other, "key": "other-table"}), encoding="utf-8")
    refused = example.run("finish", "other.json")
    assert refused.returncode == 1
    assert refused.stderr.split(":")[0].isupper(), "the service's error code comes first"
    assert example.run("begin", "customers.json", "lake.shop.customers").returncode == 0, "the table is as it was"


def test_a_certificate_of_another_authority_gets_no_connection(example, client, tmp_path):
    pair = CertificateAuthority.create(tmp_path, name="Other CA").issue_client("mallory", name="mallory")
    words = ["openssl", "pkcs12", "-export", "-in", pair.cert, "-inkey", pair.key, "-passout", f"pass:{PASSWORD}"]
    built(*words, "-out", "mallory.p12", cwd=example.folder)
    assert example.run("begin", "customers.json", "lake.shop.customers").returncode == 0
    before = listed(client, "customers")
    refused = example.run("finish", "customers.json", key_store="mallory.p12")
    assert refused.returncode == 1
    assert "ANSWER_LOST" in refused.stderr
    assert listed(client, "customers") == before
