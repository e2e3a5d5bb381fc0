"""The changes of a reference in the order of its commits, followed from a cursor.

A commit's names are stored beside its head, under the same id, if the committer keeps a feed (`entity_committer`). The
log is kept for as long as the policy of maintenance says (`SweepPolicy.log_kept`), and the 20 newest commits anyway.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from delegation.persistence.backends.base import MAX_ID, Reference
from delegation.persistence.commits.commits import CommitObject
from delegation.persistence.commits.entities import EntityHead
from delegation.persistence.errors import FeedExpired, InvalidPageToken
from delegation.persistence.index.keys import IndexKey
from delegation.persistence.objects.objects import ObjectRef, PersistedModel
from delegation.persistence.objects.store import CatalogStore, of_model
from delegation.persistence.objects.types import ObjectType

MOST_NAMES: Final = 1_000
"""A commit that changed more names says so, and its readers list everything."""


class CommitNames(PersistedModel):
    """The names that a commit changed, as encoded keys with the new ref (None for a removal), stored under the id of
    its head; none if they were more than MOST_NAMES."""

    names: tuple[tuple[bytes, ObjectRef | None], ...] = ()
    complete: bool = True


NAMES_TYPE: Final = ObjectType("commit-names", CommitNames)


def names_of(head: CommitObject) -> CommitNames | None:
    """Return the names that wait in a head before it is sealed; None if there are none."""
    waiting = head.waiting if isinstance(head, EntityHead) else {}
    if not waiting:
        return None
    if len(waiting) > MOST_NAMES:
        return CommitNames(complete=False)
    return CommitNames(names=tuple((bytes(key), ref) for key, ref in sorted(waiting.items())))


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One commit: its head's id, its number, its time in µs, its operations, and the names that it changed with their
    new refs, None for a removal. `names` is None if they were not kept or are too many."""

    commit_id: int
    seq: int
    created_at: int
    operations: tuple[str, ...]
    names: tuple[tuple[IndexKey, ObjectRef | None], ...] | None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Commits, the oldest first, and the cursor after the last one; `more` if there are further ones already."""

    entries: tuple[FeedEntry, ...]
    cursor: str
    more: bool


class FeedCursor(NamedTuple):
    """The position after a commit (`id` 0: before the first) of a reference, which was created at a time in µs."""

    created_at: int
    seq: int
    id: int

    def encode(self) -> str:
        """Return the cursor as URL-safe text."""
        return base64.urlsafe_b64encode(json.dumps(list(self)).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the cursor of a text. Raises InvalidPageToken."""
        try:
            found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        except (binascii.Error, ValueError, RecursionError) as error:
            raise InvalidPageToken("the cursor of the feed was altered; list everything, and follow it anew") from error
        numbers = found if isinstance(found, list) else []
        if len(numbers) != 3 or not all(type(one) is int and 0 <= one <= MAX_ID for one in numbers):
            raise InvalidPageToken("the cursor of the feed was altered; list everything, and follow it anew")
        return cls(*numbers)


class Feed:
    """The commits of one reference, whose heads hold `model`."""

    def __init__(self, store: CatalogStore, reference: str, model: type[CommitObject] = EntityHead) -> None:
        self._store = store
        self._name = reference
        self._model = model
        self._type = store.types.of(model).name

    def now(self) -> str:
        """Return the cursor after the newest commit. Take it, then list everything, then follow: nothing is missed.

        Raises ReferenceNotFound.
        """
        reference = self._store.current_reference(self._name)
        newest = next(self._back(reference), None)
        return FeedCursor(reference.created_at, newest[1] if newest else 0, newest[0] if newest else 0).encode()

    def read(self, cursor: str, *, limit: int = 100) -> FeedPage:
        """Return at most `limit` commits after the cursor.

        Raises FeedExpired if some are no longer kept, or the reference was reset or made anew; InvalidPageToken;
        ReferenceNotFound; ValueError for a limit below 1.
        """
        if limit < 1:
            raise ValueError(f"the limit of a page must be at least 1, not {limit}")
        after = FeedCursor.decode(cursor)
        reference = self._store.current_reference(self._name)
        if reference.created_at != after.created_at:
            raise FeedExpired(f"reference {self._name!r} was made anew since; list everything, and follow it anew")
        newer: list[int] = []
        for id_, seq in self._back(reference):
            if seq <= after.seq:
                if id_ != after.id:
                    raise FeedExpired(f"reference {self._name!r} was reset since; list everything, and follow it anew")
                break
            newer.append(id_)
        else:
            if after.seq or (newer and len(newer) < self._seq_of(newer[0])):
                raise FeedExpired(f"commits of {self._name!r} after the cursor are no longer kept; list everything")
        page = newer[::-1][:limit]
        entries = tuple(self._entries(page))
        if len(entries) < len(page):
            raise FeedExpired(f"commits of {self._name!r} after the cursor are no longer kept; list everything")
        last = FeedCursor(after.created_at, entries[-1].seq, entries[-1].commit_id) if entries else after
        return FeedPage(entries, last.encode(), len(newer) > len(page))

    def _seq_of(self, id_: int) -> int:
        found = self._store.fetch(ObjectRef(self._type, id_), self._model)
        return found.value.seq if found else 0

    def _back(self, reference: Reference) -> Iterator[tuple[int, int]]:
        """Return id and number of the commits from the newest backwards, by every twentieth head."""
        next_ = reference.head
        while next_ is not None:
            found = self._store.fetch(ObjectRef(self._type, next_), self._model)
            if found is None:
                return
            head = found.value
            yield next_, head.seq
            # All but the last of the tail; with that one it continues.
            yield from ((id_, head.seq - back) for back, id_ in enumerate(head.tail[:-1], 1))
            next_ = head.tail[-1] if head.tail else None

    def _entries(self, ids: list[int]) -> Iterator[FeedEntry]:
        heads = self._store.fetch_many(ObjectRef(self._type, one) for one in ids)
        names = self._store.fetch_many(ObjectRef(NAMES_TYPE.name, one) for one in ids)
        for head, beside in zip(heads, names, strict=True):
            if head is None:
                return
            value = of_model(head, self._model).value
            noted = of_model(beside, CommitNames).value if beside else None
            changed = tuple((IndexKey(key), ref) for key, ref in noted.names) if noted and noted.complete else None
            yield FeedEntry(head.key.id, value.seq, value.created_at, value.operations, changed)
