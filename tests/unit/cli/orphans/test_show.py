"""`delegation orphans show`: the files of a plan, for a person who is to approve it."""

import json
from datetime import UTC, datetime

import pytest

from delegation.cli.connection import Connection
from delegation.removal.chunks import Total
from delegation.removal.index import store_index
from delegation.removal.orphans.index import Candidate, CandidateWriter, ForeignPart
from delegation.storage.s3_plans import S3PlanStore
from tests.unit.cli.orphans.plans import orphan_index
from tests.unit.client.service import TASK_ID

PLAN = f"{TASK_ID}/1/ab12"
LISTED_AT = int(datetime(2026, 12, 2, 12, tzinfo=UTC).timestamp())
FILES = [Candidate(f"s3://lake/t/data/{number}.parquet", 2048, "e", LISTED_AT - 400_000) for number in range(3)]


@pytest.fixture
def plans(s3, monkeypatch):
    s3.create_bucket(Bucket="my-plans")
    monkeypatch.setattr(Connection, "s3", lambda _self, _bucket, _endpoint=None: s3)
    return S3PlanStore(s3, "my-plans")


def published(plans, **changed):
    writer = CandidateWriter(plans, PLAN, "", chunk_paths=2)
    writer.extend(FILES)
    writer.flush()
    counts = {"ORPHAN": Total(files=3, bytes=6144)}
    listed = Total(files=47, bytes=126_313)
    about = {"chunks": tuple(writer.chunks), "counts": counts, "listed": listed, "listed_at": LISTED_AT, "age": 259_200}
    store_index(plans, orphan_index(plan_id=PLAN, identifier="lake.shop.orders", **about, **changed))


def test_people_see_where_how_old_and_which(run, plans, stack):
    published(plans, waits="first-run")
    result = run("orphans", "show", PLAN, "--limit", "2", "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert [line.rstrip() for line in result.stdout.splitlines()] == [
        f"Plan {PLAN} of lake.shop.orders",
        "  location  s3://lake/t/",
        "  listed    47 objects, 123.4 KiB, at 2026-12-02T12:00:00Z by the store's clock",
        "  orphan    3 files, 6.0 KiB, 3 days old or more at that time",
        "  waits     for approval, because it is the table's first plan at this location (first-run)",
        "  2026-11-27T20:53:20Z     2.0 KiB  s3://lake/t/data/0.parquet",
        "  2026-11-27T20:53:20Z     2.0 KiB  s3://lake/t/data/1.parquet",
        "  1 more file; --limit 3 lists all",
        f"Approve it: delegation orphans approve {PLAN}",
    ]


def test_programs_get_the_files_with_their_times(run, plans, stack):
    published(plans)
    found = json.loads(run("orphans", "show", PLAN, "--stack", str(stack), "--json").stdout)
    assert (found["files_planned"], found["bytes_planned"], found["waits"]) == (3, 6144, "")
    assert found["files"][2] == {
        "path": "s3://lake/t/data/2.parquet",
        "bytes": 2048,
        "modified": "2026-11-27T20:53:20.000000Z",
    }


def test_a_listing_is_no_plan(run, plans, stack):
    published(plans, stage="listed")
    result = run("orphans", "show", PLAN, "--stack", str(stack))
    assert result.exit_code == 1
    assert "listing" in result.stderr


def test_what_is_no_plan_is_misuse(run, plans, stack):
    assert run("orphans", "show", "lake.shop.orders", "--stack", str(stack)).exit_code == 2


def test_tables_that_no_catalog_lists_are_shown_with_what_stays_and_why(run, plans, stack):
    part = ForeignPart(uuid=TASK_ID, place="s3://lake/t/x/", files=2, bytes=2048, why="its log cannot be read")
    published(plans, foreign_tables=(part,))
    lines = run("orphans", "show", PLAN, "--stack", str(stack)).stdout.splitlines()
    assert f"  foreign   {TASK_ID}: 2 files, 2.0 KiB, at s3://lake/t/x/; its log cannot be read" in [
        line.rstrip() for line in lines
    ]
    assert lines[-1].startswith(f"Approve it: delegation orphans approve {PLAN} (--including UUID adds")
    found = json.loads(run("orphans", "show", PLAN, "--stack", str(stack), "--json").stdout)
    assert found["foreign_tables"] == [part.model_dump(exclude={"parts"})]
