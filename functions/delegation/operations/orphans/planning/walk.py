"""Listing a location: split by the prefixes found in it, several of them at a time, page by page.

What a part lists is written as it comes: `{task}/listed/{digest of submission and prefix}.json` says which chunks have
it, and up to which key. An attempt after a crash resumes there. Two attempts at once write chunks of their own, and
whichever record it reads, what that names was listed.
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from pydantic import ValidationError

from delegation.operations.orphans.approval import ListedAmount
from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.eligible import Eligible
from delegation.operations.orphans.index import Candidate, CandidateWriter, ListedPart
from delegation.storage.base import ObjectNotFound
from delegation.storage.listing.model import ListedFolder, ListedObject, ListedPage
from delegation.storage.locations import uri_of
from delegation.worksets.chunks import Stored

_DIGEST = 20


class _Progress(Stored):
    """How far a part is listed: up to the key `after`; `at` is the store's time of its first page."""

    prefix: str
    age: int
    after: str
    done: bool
    at: int
    files: int
    bytes: int
    parts: tuple[ListedPart, ...]


@dataclass(slots=True)
class LocationListing:
    """What is at a location: the amount of all of it, the chunks of candidates, and the store's time of its start."""

    total: ListedAmount
    at: int
    parts: tuple[ListedPart, ...]


@dataclass(slots=True)
class _Part:
    """A prefix whose objects are listed page after page."""

    prefix: str
    writer: CandidateWriter
    before: tuple[ListedPart, ...] = ()
    after: str = ""
    at: int = 0
    total: ListedAmount = field(default_factory=ListedAmount)

    def parts(self, plan_id: str) -> tuple[ListedPart, ...]:
        chunks = tuple(self.writer.chunks)
        return (*self.before, ListedPart(plan_id=plan_id, chunks=chunks)) if chunks else self.before


def walk(ctx: OrphanContext, eligible: Eligible, plan_id: str, *, resume: bool = True) -> LocationListing:
    """List everything at the location and store what may be an orphan; raise the errors of the store.

    With `resume` what an earlier attempt listed is not listed again.
    """
    return _Walk(ctx, eligible, plan_id, resume=resume).run()


class _Walk:
    def __init__(self, ctx: OrphanContext, eligible: Eligible, plan_id: str, *, resume: bool) -> None:
        self._resume = resume
        self._ctx = ctx
        self._eligible = eligible
        self._plan_id = plan_id
        self._bucket = eligible.root.bucket
        self._total = ListedAmount()
        self._ats: list[int] = []
        self._parts: list[ListedPart] = []

    def run(self) -> LocationListing:
        prefixes = self._split(f"{self._eligible.root.prefix}/")
        self._list(prefixes)
        return LocationListing(self._total, min(self._ats), tuple(self._parts))

    def _split(self, prefix: str) -> list[str]:
        """Return prefixes that together have all objects but those found directly below a prefix on the way."""
        direct: list[tuple[ListedObject, int]] = []
        whole: list[str] = []
        left = deque([prefix])
        # The first look is always made: it says what time it is in the store.
        while left and (not self._ats or len(left) + len(whole) < self._ctx.settings.prefixes):
            self._ctx.attempt.checkpoint()
            one = left.popleft()
            found: ListedFolder = self._ctx.store.folder(self._bucket, one)
            self._ats.append(found.at)
            if not found.is_whole:
                whole.append(one)
                continue
            direct += [(each, found.at) for each in found.objects]
            left += found.folders
        self._store_direct(direct)
        return [*whole, *left]

    def _store_direct(self, found: Iterable[tuple[ListedObject, int]]) -> None:
        writer = self._writer("direct-")
        in_order = sorted(found, key=lambda each: each[0].key)
        self._total += ListedAmount(len(in_order), sum(one.size for one, _ in in_order))
        writer.extend(self._candidates([one for one, at in in_order if self._eligible.admits(one, at)]))
        writer.flush()
        if writer.chunks:
            self._parts.append(ListedPart(plan_id=self._plan_id, chunks=tuple(writer.chunks)))

    def _list(self, prefixes: Sequence[str]) -> None:
        waiting = deque(self._begin(prefix) for prefix in prefixes)
        listing: dict[Future[ListedPage], _Part] = {}
        with ThreadPoolExecutor(self._ctx.settings.list_threads, thread_name_prefix="list") as pool:
            try:
                while waiting or listing:
                    self._ctx.attempt.checkpoint()
                    while waiting and len(listing) < self._ctx.settings.list_threads:
                        part = waiting.popleft()
                        if part is not None:
                            listing[self._next(pool, part)] = part
                    for future in wait(listing, timeout=1, return_when=FIRST_COMPLETED).done:
                        part = listing.pop(future)
                        if not self._take(part, future.result()):
                            listing[self._next(pool, part)] = part
            finally:
                for future in listing:
                    future.cancel()

    def _next(self, pool: ThreadPoolExecutor, part: _Part) -> "Future[ListedPage]":
        return pool.submit(self._ctx.store.page, self._bucket, part.prefix, after=part.after)

    def _begin(self, prefix: str) -> _Part | None:
        """Return a part to list, from where an earlier attempt stopped; None if that one listed all of it."""
        part = _Part(prefix, self._writer(f"{_digest(prefix)}-"))
        known = self._known(prefix) if self._resume else None
        if known is None:
            return part
        part.before, part.after, part.at = known.parts, known.after, known.at
        part.total = ListedAmount(known.files, known.bytes)
        if not known.done:
            return part
        self._finish(part)
        return None

    def _take(self, part: _Part, page: ListedPage) -> bool:
        """Store what a page has; return whether it was the last one."""
        part.at = part.at or page.at
        part.total += ListedAmount(len(page.objects), sum(one.size for one in page.objects))
        stored = part.writer.extend(self._candidates(self._eligible.some(page.objects, page.at)))
        if page.objects:
            part.after = page.objects[-1].key
        if page.is_last or not page.objects or stored:
            # So a part is resumed only where all of its candidates are stored.
            part.writer.flush()
            self._record(part, done=page.is_last or not page.objects)
        if page.is_last or not page.objects:
            self._finish(part)
            return True
        return False

    def _finish(self, part: _Part) -> None:
        self._total += part.total
        self._ats.append(part.at)
        self._parts += part.parts(self._plan_id)

    def _record(self, part: _Part, *, done: bool) -> None:
        progress = _Progress(
            prefix=part.prefix,
            age=self._eligible.age,
            after=part.after,
            done=done,
            at=part.at,
            files=part.total.files,
            bytes=part.total.bytes,
            parts=part.parts(self._plan_id),
        )
        self._ctx.plans.put(self._key(part.prefix), progress.model_dump_json().encode())
        self._ctx.listed(self._total.files + part.total.files)

    def _known(self, prefix: str) -> _Progress | None:
        """Return how far a part was listed not long ago with the same age; anything else is listed anew."""
        try:
            found = _Progress.model_validate(json.loads(self._ctx.plans.get(self._key(prefix))))
        except (ObjectNotFound, ValueError, ValidationError):
            return None
        serves = self._ctx.settings.listing_serves.total_seconds()
        young = 0 <= self._ats[0] - found.at <= serves
        return found if young and (found.prefix, found.age) == (prefix, self._eligible.age) else None

    def _key(self, prefix: str) -> str:
        submission = f"{self._ctx.submission}/" if self._ctx.submission else ""
        return f"{self._ctx.attempt.task_id}/listed/{_digest(submission + prefix)}.json"

    def _writer(self, name: str) -> CandidateWriter:
        return CandidateWriter(self._ctx.plans, self._plan_id, name, chunk_paths=self._ctx.settings.chunk_paths)

    def _candidates(self, some: Iterable[ListedObject]) -> list[Candidate]:
        root = uri_of(self._bucket, "")
        return [Candidate(root + one.key, one.size, one.etag, one.modified) for one in some]


def _digest(prefix: str) -> str:
    return hashlib.sha256(prefix.encode()).hexdigest()[:_DIGEST]
