"""Which unfinished uploads a plan permits to abort, as orders of events between writers, listing and abort."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegation.errors import RunCancelled
from delegation.operations.orphans.index import OrphanIndex
from delegation.operations.orphans.uploads import AbortRun, UploadState
from delegation.storage.listing.uploads import Upload
from delegation.worksets.chunks import Total

LISTED_AT = 1_800_000_000
DAY = 86_400
AGE = 3 * DAY


def index_of(**changed: Any) -> OrphanIndex:
    return OrphanIndex.model_validate(
        {
            "plan_id": "task/1/ab",
            "task_id": "task",
            "attempt": 1,
            "table_uuid": "u",
            "identifier": "c.n.t",
            "metadata_location": "s3://lake/t/metadata/1.json",
            "last_updated_ms": 0,
            "format_version": 2,
            "snapshots": 1,
            "engine": "inline",
            "created_at": "2027-01-15T08:00:00+00:00",
            "roots": ("s3://lake/t/",),
            "covered": None,
            "outside": "keep",
            "chunks": (),
            "counts": {},
            "findings": (),
            "stage": "planned",
            "listed": Total(files=1, bytes=1),
            "listed_at": LISTED_AT,
            "age": AGE,
            **changed,
        }
    )


@dataclass
class Uploads:
    """The unfinished uploads to a bucket, each with its bytes; `late` are parts that arrive after so many aborts."""

    there: dict[Upload, int] = field(default_factory=dict)
    late: dict[Upload, int] = field(default_factory=dict)
    aborted: list[Upload] = field(default_factory=list)
    before_abort: Callable[[], object] = lambda: None

    def uploads(self, bucket: str, prefix: str) -> Iterator[Upload]:
        assert bucket == "lake"
        yield from [one for one in self.there if one.key.startswith(prefix)]

    def size(self, bucket: str, upload: Upload) -> int | None:
        assert bucket == "lake"
        return self.there.get(upload)

    def abort(self, bucket: str, upload: Upload) -> bool:
        assert bucket == "lake"
        self.before_abort()
        self.aborted.append(upload)
        if upload not in self.there:
            return False
        if self.late.get(upload, 0):
            self.late[upload] -= 1
            self.there[upload] = 5
        else:
            del self.there[upload]
        return True


def old(key: str, upload_id: str = "1") -> Upload:
    return Upload(key, upload_id, LISTED_AT - AGE - 1)


def test_only_uploads_older_than_the_age_at_the_listing_are_aborted() -> None:
    kept = {
        Upload("t/data/at-the-limit", "1", LISTED_AT - AGE),
        Upload("t/data/after-the-listing", "1", LISTED_AT + DAY),
        old("t/_temporary/a"),
        old("t/data/.staging/a"),
        old("tt/data/a"),
        old("other"),
    }
    gone = {old("t/data/a"), old("t/data/a", "2"), old("t/metadata/1.json"), old("t/data/ü b")}
    store = Uploads(dict.fromkeys(kept | gone, 7))
    found = AbortRun(store, index_of()).run()
    assert set(store.there) == kept
    assert set(store.aborted) == gone
    assert found.amounts[UploadState.ABORTED].files == 4
    assert found.amounts[UploadState.ABORTED].bytes == 28
    assert found.amounts[UploadState.RECENT].files == 4
    assert found.is_complete
    again = AbortRun(store, index_of()).run()
    assert again.amounts[UploadState.ABORTED].files == 0
    assert len(store.aborted) == 4


def test_a_dry_run_aborts_nothing() -> None:
    store = Uploads({old("t/a"): 7})
    found = AbortRun(store, index_of(), dry_run=True).run()
    assert (found.amounts[UploadState.ABORTED].bytes, store.aborted) == (7, [])
    assert found.sample == [("s3://lake/t/a", LISTED_AT - AGE - 1, 7)]


@pytest.mark.parametrize("when", ["before the look", "before the abort"])
def test_an_upload_that_its_writer_completes_meanwhile_is_left(when: str) -> None:
    store = Uploads({old("t/a"): 7})
    if when == "before the look":
        store.uploads = lambda *_: iter([old("t/gone")])  # type: ignore[method-assign]
    else:
        store.before_abort = store.there.clear
    found = AbortRun(store, index_of()).run()
    assert found.amounts[UploadState.GONE].files == 1
    assert found.amounts[UploadState.ABORTED].files == 0
    assert found.is_complete


@pytest.mark.parametrize(
    ("late", "state"), [(1, UploadState.ABORTED), (2, UploadState.ABORTED), (3, UploadState.REMAINS)]
)
def test_parts_that_arrive_while_an_upload_is_aborted_are_aborted_too(late: int, state: UploadState) -> None:
    one = old("t/a")
    store = Uploads({one: 7}, {one: late})
    found = AbortRun(store, index_of()).run()
    assert found.amounts[state].files == 1
    assert found.is_complete == (state is UploadState.ABORTED) == (not store.there)
    assert len(store.aborted) == min(late + 1, 3)
    assert bool(found.left) == (state is UploadState.REMAINS)


def test_it_stops_between_two_batches_and_a_repetition_finishes() -> None:
    store = Uploads({old(f"t/{number:04d}"): 1 for number in range(600)})
    calls: list[int] = []

    def checkpoint() -> None:
        calls.append(len(store.there))
        if len(calls) == 2:
            raise RunCancelled("task")

    with pytest.raises(RunCancelled):
        AbortRun(store, index_of(), checkpoint=checkpoint).run()
    assert calls == [600, 344]
    found = AbortRun(store, index_of()).run()
    assert found.amounts[UploadState.ABORTED].files == 344
    assert not store.there


@given(
    uploads=st.lists(
        st.tuples(
            st.sampled_from(["t/a", "t/_h/a", "t/b/", "t2/a", "t/ä", "t/a?b", "t/x//y"]), st.integers(-5 * DAY, 2 * DAY)
        ),
        max_size=20,
    ),
    ages=st.tuples(st.integers(DAY, 4 * DAY), st.integers(DAY, 4 * DAY)),
)
def test_a_greater_age_never_aborts_more(uploads: list[tuple[str, int]], ages: tuple[int, int]) -> None:
    """And never one outside the location, or that began after the listing less the age."""
    there = [Upload(key, str(number), LISTED_AT + at) for number, (key, at) in enumerate(uploads)]
    aborted = []
    for age in sorted(ages):
        store = Uploads(dict.fromkeys(there, 1))
        AbortRun(store, index_of(age=age)).run()
        aborted.append(set(store.aborted))
        assert all(one.key.startswith("t/") and one.began < LISTED_AT - age for one in store.aborted)
    assert aborted[1] <= aborted[0]
