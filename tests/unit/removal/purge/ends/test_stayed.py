"""What the receipt of a purge says of the objects that are at the table's location afterwards."""

from dataclasses import replace
from typing import Any

import pytest

from delegation.polaris.answers import NoSuchTable
from delegation.removal.purge.context import PAGES, LocationContents, count_stayed
from delegation.removal.purge.run import purge_table
from delegation.storage.base import ObjectStoreDenied, ObjectStoreUnavailable
from delegation.storage.listing.model import PAGE, ListedPage
from delegation.storage.locations import Root
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from polaris_common.errors import DelegationError
from tests.kit.lakes.lake import PurgedTables


def test_a_location_that_is_empty_is_said_to_be(bench: PurgedTables) -> None:
    stayed = bench.receipt(purge_table(bench.context("t")))["stayed"]
    assert stayed == {"location": "s3://lake/wh/t/", "objects": 0, "bytes": 0, "is_whole": True}


def test_what_no_table_named_is_counted_with_the_command_that_shows_it(bench: PurgedTables) -> None:
    bench.lake.write("s3://lake/wh/t/data/orphan.parquet", b"12345")
    bench.lake.write("s3://lake/wh/t/_temporary/0/x", b"1")
    bench.lake.write("s3://lake/wh/t2/data/x.parquet", b"of another table")
    assert bench.receipt(purge_table(bench.context("t")))["stayed"] == {
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


@pytest.mark.parametrize("root", ["wh/t", ""])
def test_the_count_has_a_bound_also_of_a_whole_bucket(root: str) -> None:
    most = PAGES * PAGE
    store = MemoryObjectStore({("lake", f"wh/t/{number:06}"): b"1" for number in range(most + 1)})
    uri = f"s3://lake/{root}/" if root else "s3://lake/"
    assert count_stayed(store, Root("lake", root)) == LocationContents(uri, most, most, False)
    assert store.faults.names == ["list"] * PAGES


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
    store = Unlistable()
    store.objects, store.error = bench.lake.objects, error
    result = purge_table(replace(bench.context("t"), store=store))
    assert result.status == "PURGED"
    assert not bench.left()
    assert bench.receipt(result)["stayed"] == {"location": "s3://lake/wh/t/", "problem": error.code}


def test_a_purge_that_dies_while_it_counts_ends_in_the_next_attempt_without_a_count(bench: PurgedTables) -> None:
    calls = Faults()
    purge_table(PurgedTables.of(bench.lake).context("t", faults=calls))
    with pytest.raises(Killed):
        purge_table(bench.context("t", faults=Faults(kill_at=len(calls.names) - calls.names[::-1].index("list"))))
    result = purge_table(bench.context("t"))
    assert result.status == "PURGED"
    assert bench.receipt(result).get("stayed") is None
