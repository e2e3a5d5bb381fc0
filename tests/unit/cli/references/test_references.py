"""`delegation references blocking` and `exempt`, over the table of the index."""

import json
from datetime import timedelta

import pytest

from delegation.cli.catalog.references import exempt_words, name_of, parse_subject
from delegation.cli.connection import find_index_table
from delegation.cli.errors import CommandError
from delegation.identifiers import TableIdentifier
from delegation.references.blocking import Blocking, Exemption, HeldPurge, Subject
from delegation.references.model import CatalogPass, TableEntry
from delegation.references.store import blocking_of
from delegation.tasks.life.model import Status
from delegation.tasks.stores.base import Create
from delegation.timestamps import utc_now
from tests.contract.task_tables import moto
from tests.kit.dynamodb import MemoryReferenceStore
from tests.kit.errors import coded
from tests.kit.tasks.builders import submitted
from tests.unit.cli.conftest import OPERATOR


@pytest.fixture
def index(index) -> MemoryReferenceStore:
    """The index with a torn, an encrypted and a foreign table, and a namespace that may not be listed."""
    since = utc_now() - timedelta(hours=3)
    for name, problem, read in (
        ("torn", "CORRUPT_MANIFEST: s3://lake/ns/torn/metadata/m0.avro is corrupt at byte 0: it is no Avro file", ""),
        ("sealed", "UNSUPPORTED: s3://lake/ns/sealed/metadata/snap.avro is encrypted", "s3://lake/sealed.json"),
        ("far.away", "UNSUPPORTED_LOCATION: gs://other/x is not a supported location: the scheme gs", ""),
    ):
        location = f"s3://lake/{name}.json"
        index.put(
            TableEntry(
                TableIdentifier("cat", ("ns",), name),
                f"uuid-{name}",
                read,
                problem=problem,
                problem_location=location,
                problem_since=since,
            )
        )
    index.put_unlisted(Blocking(Subject("cat", ("secret",)), "POLARIS_FORBIDDEN: needs TABLE_LIST", since))
    return index


def test_what_cannot_be_read_is_listed_with_the_command_that_exempts_it(run, index, stack, monkeypatch):
    index.put_held(HeldPurge("task", Subject("cat", ("ns",), "torn")))
    monkeypatch.setenv("COLUMNS", "160")
    text = run("references", "blocking", "cat", "--stack", str(stack)).stdout
    assert "unreadable since" in text
    assert "(3 hours): CORRUPT_MANIFEST: s3://lake/ns/torn" in text
    assert "holds back every purge that checks this catalog\n" in text
    assert "holds back only purges of tables with overlapping storage\n" in text
    assert "delegation references exempt cat.ns.torn --why …" in text
    assert text.endswith("\n1 purge waits.\n")
    assert "delegation references exempt 'cat.ns.`far.away`' --why …" in text
    assert "delegation references exempt cat.secret --list --why …" in text


def test_json_has_everything(run, index, stack):
    done = json.loads(run("references", "blocking", "cat", "--stack", str(stack), "--json").stdout)
    found = {one["what"]: one for one in done["blocking"]}
    assert set(found) == {"cat.ns.torn", "cat.ns.sealed", "cat.ns.`far.away`", "cat.secret"}
    assert (found["cat.secret"]["kind"], found["cat.secret"]["holds_back"]) == ("namespace", "all")
    assert found["cat.ns.torn"]["error_code"] == "CORRUPT_MANIFEST"
    assert found["cat.ns.torn"]["metadata_location"] == "s3://lake/torn.json"


def test_nothing_that_blocks_is_said(run, index, stack):
    text = run("references", "blocking", "empty", "--stack", str(stack)).stdout
    assert text == "Everything in empty could be read; no purge is held back.\n"


def test_an_exemption_is_recorded_and_lets_the_waiting_purges_run(run, index, store, stack):
    waits = submitted(
        task_type="TABLE_PURGE",
        status=Status.RETRY_SCHEDULED,
        error_code="NEIGHBOUR_UNREADABLE",
        next_scheduled_run_ts=utc_now() + timedelta(hours=1),
        due_at=utc_now() + timedelta(hours=1),
    )
    store.apply(Create(waits))
    index.put_held(HeldPurge(waits.task_id, Subject("cat", ("ns",), "torn")))
    done = run("references", "exempt", "cat.ns.torn", "--why", "left by a former team", "--yes", "--stack", str(stack))
    assert done.exit_code == 0, done.output
    assert "cat.ns.torn is exempt until" in done.stdout
    assert "1 purge waited for it and runs within a minute." in done.stdout
    (found,) = index.exemptions("cat")
    assert (found.why, found.by, found.metadata_location) == ("left by a former team", OPERATOR, "s3://lake/torn.json")
    assert found.until - found.at == timedelta(days=30)
    assert store.get(waits.task_id).next_scheduled_run_ts <= utc_now()
    assert index.held("cat") == []
    shown = json.loads(run("references", "blocking", "cat", "--stack", str(stack), "--json").stdout)["blocking"]
    assert shown[-1]["exemption"]["why"] == "left by a former team"
    assert "exempt until" in run("references", "blocking", "cat", "--stack", str(stack)).stdout


def test_a_namespace_that_may_not_be_listed_is_exempted_by_its_name(run, index, store, stack):
    words = ("references", "exempt", "cat.secret", "--list", "--why", "not ours", "--yes", "--stack", str(stack))
    done = run(*words, "--json")
    assert json.loads(done.stdout)["exemption"]["kind"] == "namespace"
    (found,) = index.exemptions("cat")
    assert found.covers(next(one for one in blocking_of(index, "cat") if one.subject.name is None), utc_now())


@pytest.mark.parametrize("words", [["cat.ns.whole"], ["cat.ns.torn", "--list"]])
def test_what_can_be_read_is_not_exempted(run, index, store, stack, words):
    done = run("references", "exempt", *words, "--why", "x", "--yes", "--stack", str(stack), "--json")
    assert done.exit_code == 1
    assert json.loads(done.stderr)["error_code"] == "NOTHING_BLOCKS"
    assert index.exemptions("cat") == []


@pytest.mark.parametrize(("name", "why"), [("cat.torn", "x"), ("cat.ns.torn", " "), ("cat.ns.torn", "x" * 501)])
def test_a_name_or_a_reason_that_is_none_is_a_misuse(run, index, store, stack, name, why):
    assert run("references", "exempt", name, "--why", why, "--yes", "--stack", str(stack)).exit_code == 2


@pytest.mark.parametrize(
    "subject", [Subject("a"), Subject("a", ("b.c",)), Subject("a", ("b", "c"), "d.e"), Subject("a", ("b",), "c")]
)
def test_every_name_that_is_shown_is_read_back(subject):
    assert parse_subject(name_of(subject), of_list=subject.name is None) == subject
    assert exempt_words(subject).endswith("--why …")


def test_an_exemption_of_another_state_is_not_shown(run, index, stack):
    (torn,) = [one for one in blocking_of(index, "cat") if one.subject.name == "torn"]
    index.put_exemption(Exemption.of(torn, why="x", by="me", now=utc_now() - timedelta(days=31)))
    shown = json.loads(run("references", "blocking", "cat", "--stack", str(stack), "--json").stdout)["blocking"]
    assert all(one["exemption"] is None for one in shown)


def test_the_index_of_a_stack_is_found_by_its_keys():
    keys = [("pk", "HASH"), ("sk", "RANGE")]
    with moto() as client:
        for name in ("delegation-references", "another"):
            client.create_table(
                TableName=name,
                BillingMode="PAY_PER_REQUEST",
                AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key, _ in keys],
                KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys],
            )
        assert find_index_table(client) == "delegation-references"
        client.delete_table(TableName="delegation-references")
        with pytest.raises(CommandError, check=coded("INDEX_TABLE_UNKNOWN")):
            find_index_table(client)


def unanswered(index, *passes: int, uuid: str = "u") -> None:
    index.put(
        TableEntry(
            TableIdentifier("cat", ("ns",), "silent"),
            uuid,
            "",
            problem="POLARIS_UNAVAILABLE: Polaris answered 503 ServiceFailureException",
            problem_since=utc_now() - timedelta(hours=3),
            unanswered=passes,
        )
    )


def test_why_no_pass_is_completed_is_printed(run, index, stack, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    unanswered(index, 7)
    problem = "the catalog did not answer for cat.ns.silent, in 1 of 3 passes"
    state = CatalogPass("cat", number=7, problem=problem, problem_since=utc_now() - timedelta(hours=3))
    index.write_pass(index.pass_of("cat"), state)
    text = run("references", "blocking", "cat", "--stack", str(stack)).stdout
    assert "No pass over cat has been completed since " in text
    assert problem in text
    assert "in 1 of 3 passes" in text
    done = json.loads(run("references", "blocking", "cat", "--stack", str(stack), "--json").stdout)
    assert done["pass"]["problem"] == problem
    [found] = [one for one in done["blocking"] if one["what"] == "cat.ns.silent"]
    assert (found["holds_back"], found["passes_without_answer"]) == ("nothing", 1)


def test_a_table_without_an_answer_is_exempted_unless_it_was_never_read(run, index, store, stack):
    unanswered(index, 7, 8, 9)
    words = ("references", "exempt", "cat.ns.silent", "--why", "it is a test", "--yes", "--stack", str(stack), "--json")
    assert json.loads(run(*words).stdout)["exemption"]["what"] == "cat.ns.silent"
    index.remove(index.get(TableIdentifier("cat", ("ns",), "silent")))
    unanswered(index, 7, 8, 9, uuid="")
    done = run(*words)
    assert done.exit_code == 1
    assert json.loads(done.stderr)["error_code"] == "NEVER_READ"
    assert "cannot be exempted" in run("references", "blocking", "cat", "--stack", str(stack)).stdout
