"""Aborting unfinished uploads at a table's location, by a plan that a removal or a dry run of it made.

The plan states where the table was, that nothing else was there, and how old a file had to be. Only uploads that were
older than that when the plan's listing was made are aborted, so that the uploads of a plan become fewer, never more.
A job that uploads for longer than the age before it completes is protected by nothing else: the age is lengthened by
a property of the table, as for files. Rights that vended credentials lack are needed (`storage.listing.uploads`).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Final

from delegation.keeping.paths import NOBODYS
from delegation.operations.orphans.approval import ListedAmount
from delegation.operations.orphans.eligible import Eligible
from delegation.operations.orphans.index import OrphanIndex
from delegation.storage.listing.model import ListedObject
from delegation.storage.listing.uploads import Upload, UploadStore
from delegation.storage.locations import ForeignLocations, Root, uri_of
from delegation.worksets.index import SAMPLE

_THREADS: Final = 16
_BATCH: Final = 256
_TRIES: Final = 3
"""Aborts of one upload: parts on their way while it is aborted outlast it (S3 API Reference, AbortMultipartUpload)."""


class UploadState(StrEnum):
    """What becomes of an unfinished upload."""

    ABORTED = "aborted"
    """It was older than the plan's age, and its parts are gone."""
    RECENT = "recent"
    """It was younger, or began after the listing, or has a hidden path; it stays."""
    GONE = "gone"
    """Somebody completed or aborted it meanwhile."""
    FOREIGN = "foreign"
    """It is at a location that belongs to others, and stays."""
    REMAINS = "remains"
    """Parts of it are still there after some aborts: a writer still sends them."""


@dataclass(slots=True)
class UploadsAborted:
    """How many uploads are in which state, and bytes of their parts; 0 of RECENT and FOREIGN ones.

    `sample` are some that were aborted, `left` some that remain: path, seconds since 1970 when each began, bytes.
    """

    amounts: dict[UploadState, ListedAmount] = field(default_factory=lambda: dict.fromkeys(UploadState, ListedAmount()))
    sample: list[tuple[str, int, int]] = field(default_factory=list)
    left: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether no parts of an upload that is to be aborted are left."""
        return not self.amounts[UploadState.REMAINS].files

    def add(self, path: str, began: int, state: UploadState, size: int) -> None:
        """Count an upload."""
        self.amounts[state] += ListedAmount(1, size)
        some = {UploadState.ABORTED: self.sample, UploadState.REMAINS: self.left}.get(state)
        if some is not None and len(some) < SAMPLE:
            some.append((path, began, size))


@dataclass(frozen=True)
class AbortRun:
    """Aborts what a plan permits; `store` has an operator's credentials. A call after an interruption resumes.

    `foreign` are locations of others beside those that the plan knows. `checkpoint` is called before each batch, and
    may raise RunStopped.
    """

    store: UploadStore
    index: OrphanIndex
    dry_run: bool = False
    foreign: ForeignLocations = NOBODYS
    checkpoint: Callable[[], None] = lambda: None

    @property
    def before(self) -> int:
        """The store's time before which an upload has to have begun, in seconds since 1970."""
        return self.index.listed_at - self.index.age

    def run(self) -> UploadsAborted:
        """Abort the uploads, with `dry_run` only look; raise the errors of the store."""
        root = Root.of(self.index.roots[0])
        eligible, found = Eligible(root, self.index.age), UploadsAborted()
        foreign = ForeignLocations((*self.index.foreign, *self.foreign.uris))
        uploads = self.store.uploads(root.bucket, f"{root.prefix}/")
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="abort") as pool:
            while batch := list(islice(uploads, _BATCH)):
                self.checkpoint()
                old: list[Upload] = []
                for one in batch:
                    as_object = ListedObject(one.key, 0, "", one.began)
                    uri = uri_of(root.bucket, one.key)
                    if foreign.contain(uri):
                        found.add(uri, one.began, UploadState.FOREIGN, 0)
                    elif eligible.admits(as_object, self.index.listed_at):
                        old.append(one)
                    else:
                        found.add(uri, one.began, UploadState.RECENT, 0)
                for one, (state, size) in zip(
                    old, pool.map(lambda one: self._abort(root.bucket, one), old), strict=True
                ):
                    found.add(uri_of(root.bucket, one.key), one.began, state, size)
        return found

    def _abort(self, bucket: str, one: Upload) -> tuple[UploadState, int]:
        size = self.store.size(bucket, one)
        if size is None:
            return UploadState.GONE, 0
        if self.dry_run:
            return UploadState.ABORTED, size
        if not self.store.abort(bucket, one):
            return UploadState.GONE, 0
        tries = 1
        while (left := self.store.size(bucket, one)) is not None:
            if tries == _TRIES:
                return UploadState.REMAINS, left
            self.store.abort(bucket, one)
            tries += 1
        return UploadState.ABORTED, size
