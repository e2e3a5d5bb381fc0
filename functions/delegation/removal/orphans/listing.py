"""Lists a location in parts, page by page, several at a time, in any process, and has the sorted parts of the result.

`{task}/listed/{digest of submission and prefix}.json` states which chunks have the candidates of a part, and up to
which key. An attempt after a crash resumes there. Two concurrent attempts write chunks of their own. Whichever record
an attempt reads, its chunks have what was listed.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import ValidationError

from delegation.removal.chunks import Stored
from delegation.removal.foreign.metadata import signs
from delegation.removal.orphans.context import OrphanContext
from delegation.removal.orphans.details import ListedAmount
from delegation.removal.orphans.index import Candidate, CandidateWriter, ListedPart
from delegation.removal.orphans.place import Eligible
from delegation.storage.base import ObjectNotFound, PlanStore
from delegation.storage.listing.model import ListableStore, ListedFolder, ListedObject, ListedPage, check_clock
from delegation.storage.locations import Root, uri_of

_DIGEST: Final = 20


class ListedProgress(Stored):
    """How far a part is listed: up to the key `after`. `at` is the store's time of its first page, 0 before that.
    `signs` are of tables that no catalog lists, None in a record of a former release."""

    prefix: str
    age: int
    after: str = ""
    done: bool = False
    at: int = 0
    files: int = 0
    bytes: int = 0
    parts: tuple[ListedPart, ...] = ()
    signs: tuple[ListedPart, ...] | None = None


@dataclass(frozen=True, slots=True)
class PartsListing:
    """How the parts of a location are listed, as plain values that are sent to executors. The candidates are stored
    below `plan_id` by `chunk_paths`. `submission` names the request, whose attempts share their listing."""

    eligible: Eligible
    plan_id: str
    task_id: str
    submission: str
    chunk_paths: int
    threads: int

    def key_of(self, prefix: str) -> str:
        """Return the key of a part's record."""
        submission = f"{self.submission}/" if self.submission else ""
        return f"{self.task_id}/listed/{_digest(submission + prefix)}.json"

    def writer(self, plans: PlanStore, name: str, first: int = 0) -> CandidateWriter:
        """Return a writer of candidates. `first` is the number of its first chunk."""
        return CandidateWriter(plans, self.plan_id, name, chunk_paths=self.chunk_paths, first=first)

    def candidates(self, some: Sequence[ListedObject]) -> list[Candidate]:
        """Return objects as candidates."""
        root = uri_of(self.eligible.root.bucket, "")
        return [Candidate(root + listed.key, listed.size, listed.etag, listed.modified) for listed in some]


@dataclass(frozen=True, slots=True)
class PartLister:
    """Lists parts with the stores of a process. `checkpoint` is called before each page, and may end it. `name`
    distinguishes the chunks of a process that may list the same part again in the same attempt, because the objects may
    have changed by then. `recorded` is called with each record that is written."""

    how: PartsListing
    store: ListableStore
    plans: PlanStore
    checkpoint: Callable[[], object]
    clock: Callable[[], datetime]
    name: str = ""
    recorded: Callable[[ListedProgress], object] = lambda _progress: None

    def run(self, begun: Sequence[ListedProgress], most_pages: int | None = None) -> Iterator[ListedProgress]:
        """List each part from its position, up to `most_pages` of it. Yields its new position, which is recorded.
        Raises the errors of the stores and of the checkpoint."""
        waiting = deque(
            _Part(progress, self._writer(progress), self._writer(progress, of_signs=True)) for progress in begun
        )
        listing: dict[Future[ListedPage], _Part] = {}
        with ThreadPoolExecutor(self.how.threads, thread_name_prefix="list") as pool:
            try:
                while waiting or listing:
                    self.checkpoint()
                    while waiting and len(listing) < self.how.threads:
                        part = waiting.popleft()
                        listing[self._next(pool, part)] = part
                    for future in wait(listing, timeout=1, return_when=FIRST_COMPLETED).done:
                        part = listing.pop(future)
                        if self._take(part, future.result(), most_pages):
                            yield part.progress
                        else:
                            listing[self._next(pool, part)] = part
            finally:
                for future in listing:
                    future.cancel()

    def _writer(self, progress: ListedProgress, *, of_signs: bool = False) -> CandidateWriter:
        parts = (progress.signs or ()) if of_signs else progress.parts
        known = sum(len(part.chunks) for part in parts if part.plan_id == self.how.plan_id)
        name = f"{'signs-' if of_signs else ''}{_digest(progress.prefix)}-{self.name}"
        return self.how.writer(self.plans, name, known)

    def _next(self, pool: ThreadPoolExecutor, part: "_Part") -> "Future[ListedPage]":
        prefix, after = part.progress.prefix, part.after
        return pool.submit(self.store.page, self.how.eligible.root.bucket, prefix, after=after)

    def _take(self, part: "_Part", page: ListedPage, most_pages: int | None) -> bool:
        """Store a page's objects. Returns whether the part is done or its pages are used up. Raises as check_clock."""
        check_clock(self.how.eligible.root.bucket, page, self.clock())
        stored = part.writer.extend(self.how.candidates(self.how.eligible.some(page.objects, page.at)))
        stored |= part.signs.extend(signs_among(self.how.eligible.root, page.objects))
        part.take(page)
        is_last = page.is_last or not page.objects
        ends = is_last or part.pages == most_pages
        if ends or stored:
            # A part is resumed only where all of its candidates are stored.
            part.writer.flush()
            part.signs.flush()
            part.progress = part.now(done=is_last)
            self.plans.put(self.how.key_of(part.progress.prefix), part.progress.model_dump_json().encode())
            self.recorded(part.progress)
        return ends


class _Part:
    """A prefix whose objects are listed page by page. `progress` is as of its last record."""

    def __init__(self, begun: ListedProgress, writer: CandidateWriter, signs: CandidateWriter) -> None:
        self._begun = begun
        self.writer = writer
        self.signs = signs
        self.progress = begun
        self.after = begun.after
        self.pages = 0
        self._at = begun.at
        self._total = ListedAmount(begun.files, begun.bytes)

    def take(self, page: ListedPage) -> None:
        self.pages += 1
        self._at = self._at or page.at
        self._total += ListedAmount(len(page.objects), sum(listed.size for listed in page.objects))
        if page.objects:
            self.after = page.objects[-1].key

    def now(self, *, done: bool) -> ListedProgress:
        """Return the part's position, after all of its candidates are stored."""
        return self._begun.model_copy(
            update={
                "after": self.after,
                "done": done,
                "at": self._at,
                "files": self._total.files,
                "bytes": self._total.bytes,
                "parts": (*self._begun.parts, *self.writer.part()),
                "signs": (*(self._begun.signs or ()), *self.signs.part()),
            }
        )


def signs_among(root: Root, some: Sequence[ListedObject]) -> list[Candidate]:
    """Return the signs of tables among a location's objects, as candidates."""
    return [Candidate(*sign) for sign in signs(uri_of(root.bucket, ""), f"{root.prefix}/", some)]


def _digest(prefix: str) -> str:
    return hashlib.sha256(prefix.encode()).hexdigest()[:_DIGEST]


ListParts = Callable[
    [OrphanContext, PartsListing, Sequence[ListedProgress], Callable[[int], None]], Iterator[ListedProgress]
]
"""Lists parts from their positions. Yields those that are done; calls a function with the files of others so far."""


@dataclass(slots=True)
class LocationListing:
    """A location's contents: its amount, its candidate chunks, the start time, and `signs` of unlisted tables."""

    total: ListedAmount
    at: int
    parts: tuple[ListedPart, ...]
    signs: tuple[ListedPart, ...]


def walk(
    ctx: OrphanContext, eligible: Eligible, plan_id: str, list_parts: ListParts, *, resume: bool = True
) -> LocationListing:
    """List everything at the location and store what may be an orphan. With `resume` what an earlier attempt listed is
    not listed again. Raises the errors of the store."""
    return _Walk(ctx, eligible, plan_id, resume=resume).run(list_parts)


class _Walk:
    def __init__(self, ctx: OrphanContext, eligible: Eligible, plan_id: str, *, resume: bool) -> None:
        self._resume = resume
        self._ctx = ctx
        self._how = PartsListing(
            eligible=eligible,
            plan_id=plan_id,
            task_id=ctx.attempt.task_id,
            submission=ctx.submission,
            chunk_paths=ctx.settings.chunk_paths,
            threads=ctx.settings.list_threads,
        )
        self._total = ListedAmount()
        self._ats: list[int] = []
        self._parts: list[ListedPart] = []
        self._signs: list[ListedPart] = []

    def run(self, list_parts: ListParts) -> LocationListing:
        prefixes = self._split(f"{self._how.eligible.root.prefix}/")
        begun = [self._begun(prefix) for prefix in prefixes]
        for progress in begun:
            if progress.done:
                self._finish(progress)
        left = [progress for progress in begun if not progress.done]
        for progress in list_parts(self._ctx, self._how, left, self._report):
            self._finish(progress)
        return LocationListing(self._total, min(self._ats), tuple(self._parts), tuple(self._signs))

    def _split(self, prefix: str) -> list[str]:
        """Return prefixes that together have all objects except those found directly below a prefix on the way."""
        direct: list[tuple[ListedObject, int]] = []
        whole: list[str] = []
        left = deque([prefix])
        # The first request is always made, because it states the store's time.
        while left and (not self._ats or len(left) + len(whole) < self._ctx.settings.prefixes):
            self._ctx.attempt.checkpoint()
            folder_prefix = left.popleft()
            folder: ListedFolder = self._ctx.store.folder(self._how.eligible.root.bucket, folder_prefix)
            check_clock(self._how.eligible.root.bucket, folder, self._ctx.clock())
            self._ats.append(folder.at)
            if not folder.is_whole:
                whole.append(folder_prefix)
                continue
            direct += [(each, folder.at) for each in folder.objects]
            left += folder.folders
        self._store_direct(direct)
        return [*whole, *left]

    def _store_direct(self, listed: Iterable[tuple[ListedObject, int]]) -> None:
        writer, signs = (self._how.writer(self._ctx.plans, name) for name in ("direct-", "signs-direct-"))
        in_order = sorted(listed, key=lambda each: each[0].key)
        self._total += ListedAmount(len(in_order), sum(file.size for file, _ in in_order))
        writer.extend(self._how.candidates([file for file, at in in_order if self._how.eligible.admits(file, at)]))
        signs.extend(signs_among(self._how.eligible.root, [file for file, _ in in_order]))
        writer.flush()
        signs.flush()
        self._parts += writer.part()
        self._signs += signs.part()

    def _begun(self, prefix: str) -> ListedProgress:
        """Return the position from which to list a part: where an earlier attempt stopped, maybe its end."""
        known = self._known(prefix) if self._resume else None
        return known or ListedProgress(prefix=prefix, age=self._how.eligible.age)

    def _finish(self, part: ListedProgress) -> None:
        self._total += ListedAmount(part.files, part.bytes)
        self._ats.append(part.at)
        self._parts += part.parts
        self._signs += part.signs or ()

    def _report(self, files: int) -> None:
        self._ctx.attempt.note(files_listed=self._total.files + files)

    def _known(self, prefix: str) -> ListedProgress | None:
        """Return how far a part was listed recently with the same age. Anything else is listed again."""
        try:
            progress = ListedProgress.model_validate(json.loads(self._ctx.plans.get(self._how.key_of(prefix))))
        except (ObjectNotFound, ValueError, ValidationError):
            return None
        serves = self._ctx.settings.listing_serves.total_seconds()
        young = 0 <= self._ats[0] - progress.at <= serves
        is_same = (progress.prefix, progress.age) == (prefix, self._how.eligible.age) and progress.signs is not None
        return progress if young and is_same else None
