"""Listing a location: split by the prefixes found in it, whose parts an engine lists (`parts`)."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from delegation.operations.orphans.approval import ListedAmount
from delegation.operations.orphans.context import OrphanContext
from delegation.operations.orphans.eligible import Eligible
from delegation.operations.orphans.index import ListedPart
from delegation.operations.orphans.planning.parts import ListedProgress, PartsListing, signs_among
from delegation.storage.base import ObjectNotFound
from delegation.storage.listing.model import ListedFolder, ListedObject, check_clock

ListParts = Callable[
    [OrphanContext, PartsListing, Sequence[ListedProgress], Callable[[int], None]], Iterator[ListedProgress]
]
"""Lists parts from where they are; yields those that are done, and calls a function with the files of others so far."""


@dataclass(slots=True)
class LocationListing:
    """What is at a location: the amount of all of it, the chunks of candidates, and the store's time of its start.

    `signs` are of tables that no catalog lists.
    """

    total: ListedAmount
    at: int
    parts: tuple[ListedPart, ...]
    signs: tuple[ListedPart, ...]


def walk(
    ctx: OrphanContext, eligible: Eligible, plan_id: str, list_parts: ListParts, *, resume: bool = True
) -> LocationListing:
    """List everything at the location and store what may be an orphan; raise the errors of the store.

    With `resume` what an earlier attempt listed is not listed again.
    """
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
        for one in begun:
            if one.done:
                self._finish(one)
        left = [one for one in begun if not one.done]
        for one in list_parts(self._ctx, self._how, left, self._report):
            self._finish(one)
        return LocationListing(self._total, min(self._ats), tuple(self._parts), tuple(self._signs))

    def _split(self, prefix: str) -> list[str]:
        """Return prefixes that together have all objects but those found directly below a prefix on the way."""
        direct: list[tuple[ListedObject, int]] = []
        whole: list[str] = []
        left = deque([prefix])
        # The first look is always made: it states what time it is in the store.
        while left and (not self._ats or len(left) + len(whole) < self._ctx.settings.prefixes):
            self._ctx.attempt.checkpoint()
            one = left.popleft()
            found: ListedFolder = self._ctx.store.folder(self._how.eligible.root.bucket, one)
            check_clock(self._how.eligible.root.bucket, found, self._ctx.clock())
            self._ats.append(found.at)
            if not found.is_whole:
                whole.append(one)
                continue
            direct += [(each, found.at) for each in found.objects]
            left += found.folders
        self._store_direct(direct)
        return [*whole, *left]

    def _store_direct(self, found: Iterable[tuple[ListedObject, int]]) -> None:
        writer, signs = (self._how.writer(self._ctx.plans, name) for name in ("direct-", "signs-direct-"))
        in_order = sorted(found, key=lambda each: each[0].key)
        self._total += ListedAmount(len(in_order), sum(one.size for one, _ in in_order))
        writer.extend(self._how.candidates([one for one, at in in_order if self._how.eligible.admits(one, at)]))
        signs.extend(signs_among(self._how.eligible.root, [one for one, _ in in_order]))
        writer.flush()
        signs.flush()
        self._parts += writer.part()
        self._signs += signs.part()

    def _begun(self, prefix: str) -> ListedProgress:
        """Return from where a part is to be listed: where an earlier attempt stopped, which may be its end."""
        known = self._known(prefix) if self._resume else None
        return known or ListedProgress(prefix=prefix, age=self._how.eligible.age)

    def _finish(self, part: ListedProgress) -> None:
        self._total += ListedAmount(part.files, part.bytes)
        self._ats.append(part.at)
        self._parts += part.parts
        self._signs += part.signs or ()

    def _report(self, files: int) -> None:
        self._ctx.listed(self._total.files + files)

    def _known(self, prefix: str) -> ListedProgress | None:
        """Return how far a part was listed not long ago with the same age; anything else is listed anew."""
        try:
            found = ListedProgress.model_validate(json.loads(self._ctx.plans.get(self._how.key_of(prefix))))
        except (ObjectNotFound, ValueError, ValidationError):
            return None
        serves = self._ctx.settings.listing_serves.total_seconds()
        young = 0 <= self._ats[0] - found.at <= serves
        is_same = (found.prefix, found.age) == (prefix, self._how.eligible.age) and found.signs is not None
        return found if young and is_same else None
