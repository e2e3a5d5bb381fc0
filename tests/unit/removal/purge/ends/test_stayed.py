"""What the receipt of a purge says of the objects that are at the table's location afterwards."""

import json
from typing import Any

import pytest
from botocore.config import Config

from delegation.polaris.answers import NoSuchTable
from delegation.removal.purge.context import PAGES, LocationContents, PurgeResult, count_stayed
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.base import ObjectStoreDenied, ObjectStoreUnavailable
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.model import PAGE, ListedPage
from delegation.storage.locations import Root
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from delegation.storage.s3 import S3ObjectStore
from polaris_common.errors import DelegationError
from tests.counts.works import answering
from tests.kit.lakes.lake import PurgedTables, filled


@pytest.fixture
def bench() -> PurgedTables:
    return filled(PurgedTables(), "t")


def stayed(bench: PurgedTables, result: PurgeResult) -> Any:
    assert result.receipt is not None
    return json.loads(bench.plans.objects[result.receipt]).get("stayed")


def test_a_location_that_is_empty_is_said_to_be(bench: PurgedTables) -> None:
    result = purge_table(bench.context("t"))
    assert stayed(bench, result) == {"location": "s3://lake/wh/t/", "objects": 0, "bytes": 0, "is_whole": True}


def test_what_no_table_named_is_counted_with_the_command_that_shows_it(bench: PurgedTables) -> None:
    bench.lake.objects["lake", "wh/t/data/orphan.parquet"] = b"12345"
    bench.lake.objects["lake", "wh/t/_temporary/0/x"] = b"1"
    bench.lake.objects["lake", "wh/t2/data/x.parquet"] = b"of another table"
    assert stayed(bench, purge_table(bench.context("t"))) == {
        "location": "s3://lake/wh/t/",
        "objects": 2,
        "bytes": 6,
        "is_whole": True,
        "command": "aws s3 ls --recursive --summarize s3://lake/wh/t/",
    }


def test_a_location_with_any_name_is_one_argument_of_the_command() -> None:
    found = LocationContents("s3://lake/a'b; rm -rf $HOME/", objects=1).recorded()
    assert found["command"] == """aws s3 ls --recursive --summarize 's3://lake/a'"'"'b; rm -rf $HOME/'"""
    assert LocationContents("file:///data/a b/", objects=1).recorded()["command"] == "find '/data/a b/' -type f"


def test_the_count_has_a_bound() -> None:
    store = MemoryObjectStore({("lake", f"wh/t/{number:06}"): b"1" for number in range(PAGES * PAGE + 1)})
    assert count_stayed(store, Root("lake", "wh/t")) == LocationContents(
        "s3://lake/wh/t/", PAGES * PAGE, PAGES * PAGE, False
    )
    assert store.faults.names == ["list"] * PAGES


def test_a_whole_bucket_is_counted_as_well() -> None:
    assert count_stayed(MemoryObjectStore({("lake", "x"): b"1"}), Root("lake", "")) == LocationContents(
        "s3://lake/", 1, 1
    )


class Unlistable(MemoryObjectStore):
    """A store that does not list, or not all of a table's location; `error` is why."""

    error: DelegationError

    def page(self, bucket: str, prefix: str, *, after: str = "") -> ListedPage:
        if self.error.retryable and prefix.endswith("metadata/"):
            return super().page(bucket, prefix, after=after)
        raise self.error


@pytest.mark.parametrize(
    "error",
    [ObjectStoreDenied("no s3:ListBucket"), ObjectStoreUnavailable("SlowDown"), NoSuchTable("no table t", status=404)],
)
def test_a_purge_succeeds_where_nothing_may_be_listed(bench: PurgedTables, error: Any) -> None:
    ctx = bench.context("t")
    store = Unlistable()
    store.objects, store.error = bench.lake.objects, error
    object.__setattr__(ctx, "store", store)
    result = purge_table(ctx)
    assert result.status == "PURGED"
    assert not bench.lake.below("s3://lake/wh/t/")
    assert stayed(bench, result) == {"location": "s3://lake/wh/t/", "problem": error.code}


def test_a_purge_that_dies_while_it_counts_ends_in_the_next_attempt_without_a_count(bench: PurgedTables) -> None:
    calls = Faults()
    purge_table(bench.context("t", faults=calls))
    del calls.names[len(calls.names) - calls.names[::-1].index("list") :]
    again = filled(PurgedTables(), "t")
    with pytest.raises(Killed):
        purge_table(again.context("t", faults=Faults(kill_at=len(calls.names))))
    result = purge_table(again.context("t"))
    assert result.status == "PURGED"
    assert stayed(again, result) is None


class Answering(S3ObjectStore):
    """A store that answers every request with the same body."""

    body = b""

    def _build(self, credential: object, *, deleting: bool) -> Any:
        config = Config(retries={"total_max_attempts": 1})
        return answering("s3", self.body, "application/xml", config=config)


@pytest.mark.parametrize(
    "body",
    [b"<ListBucketResult><Contents><Key>wh/t/x</Key></Contents></ListBucketResult>",
     b"<ListBucketResult><Contents><Key>x</Key><Size>much</Size></Contents></ListBucketResult>",
     b"<ListBucketResult></ListBucketResult>", b"<html>"],
)  # fmt: skip
def test_a_listing_that_makes_no_sense_is_a_problem_and_no_failure(body: bytes) -> None:
    store = Answering(settings=S3Settings())
    store.body = body
    assert count_stayed(store, Root("lake", "wh/t")).problem is not None


def test_a_dry_run_counts_nothing(bench: PurgedTables) -> None:
    faults = Faults()
    purge_table(bench.context("t", faults=faults, options=PurgeOptions(dry_run=True)))
    assert faults.names.count("list") == 1, "the folder of the metadata files"
