"""A store that confirms deletes and keeps the files: the look at the current metadata file finds it."""

import dataclasses
from collections.abc import Sequence

import pytest

from delegation.polaris.answers import NoSuchTable
from delegation.removal.errors import EngineFailed, FilesNotDeletedYet
from delegation.removal.marks import Marks
from delegation.removal.purge.run import purge_table
from delegation.storage.base import BatchResult
from delegation.storage.memory import MemoryObjectStore, MemoryPlanStore
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.lakes.lake import PurgedTables, rows


class ConfirmsAndKeeps(MemoryObjectStore):
    """Deletes the keys with these ends, and only confirms the others."""

    ends: tuple[str, ...] = ("no key",)

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        super().delete(bucket, [key for key in keys if key.endswith(self.ends)])
        return BatchResult(tuple(keys))


def deceived(bench: PurgedTables, *ends: str) -> None:
    """Run a purge to its end with a store that keeps most files."""
    ctx = bench.context("t")
    store = ConfirmsAndKeeps()
    store.objects, store.ends = bench.lake.objects, ends or store.ends
    with pytest.raises(FilesNotDeletedYet, match="StillThere"):
        purge_table(dataclasses.replace(ctx, store=store))


class VoidsBeforeItAnswers(ConfirmsAndKeeps):
    """Another process makes all marks void between a delete and its answer, which is false."""

    plans: MemoryPlanStore

    def delete(self, bucket: str, keys: Sequence[str]) -> BatchResult:
        [index] = [key for key in self.plans.objects if key.endswith("/index.json")]
        Marks(self.plans, index.removesuffix("/index.json")).void()
        return super().delete(bucket, keys)


def test_a_purge_whose_root_is_still_there_deletes_again(bench: PurgedTables) -> None:
    deceived(bench)
    result = purge_table(bench.context("t"))
    assert (result.status, result.files_deleted) == ("PURGED", result.files_planned)
    assert bench.left() == set()


def test_a_table_that_is_dropped_after_a_deceived_purge_is_no_success(bench: PurgedTables) -> None:
    deceived(bench)
    del bench.lake.pointers["t"]
    with pytest.raises(DelegationError, check=coded("TABLE_GONE")) as raised:
        purge_table(bench.context("t"))
    assert isinstance(raised.value.__cause__, NoSuchTable)


def test_a_commit_after_a_deceived_purge_is_planned_although_manifests_are_gone(bench: PurgedTables) -> None:
    deceived(bench, "-m0.avro")
    bench.lake.table("t").append(rows(9, part="z"))
    purge_table(bench.context("t"))
    assert bench.left() == set()


def test_a_delete_that_was_sent_before_the_marks_became_void_leaves_no_valid_mark(bench: PurgedTables) -> None:
    store = VoidsBeforeItAnswers()
    store.objects, store.plans = bench.lake.objects, bench.plans
    with pytest.raises(EngineFailed, match="2 chunks of the plan"):
        purge_table(dataclasses.replace(bench.context("t"), store=store))
    assert purge_table(bench.context("t")).status == "PURGED"
    assert bench.left() == set()


def test_void_marks_are_as_if_never_written_but_remembered(bench: PurgedTables) -> None:
    result = purge_table(bench.context("t"))
    marks = Marks(bench.plans, result.plan_ids[0])
    marked = marks.done()
    marks.void()
    assert marks.done() == frozenset()
    assert not marks.root_is_next()
    assert marks.once_done() == marked
    marks.mark_root_next()
    marks.void()
    assert not marks.root_is_next()
