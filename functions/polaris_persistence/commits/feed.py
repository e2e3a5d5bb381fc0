"""The changes of a reference in the order of its commits, followed from a cursor.

A commit's names are stored beside its head, under the same id, if the committer keeps a feed (`entity_committer`). The
log is kept for as long as the policy of maintenance states (`SweepPolicy.log_kept`), and the 20 newest commits anyway.
"""

import base64
import binascii
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, NamedTuple, Self

from polaris_persistence.backends.base import MAX_ID, RECENT_HEADS
from polaris_persistence.commits.commits import CommitObject
from polaris_persistence.commits.entities import EntityHead
from polaris_persistence.errors import CorruptObject, PersistenceError, feed_expired, invalid_page_token
from polaris_persistence.ids.snowflake import made_at_ms
from polaris_persistence.index.keys import IndexKey
from polaris_persistence.objects.objects import Loaded, ObjectRef, PersistedModel
from polaris_persistence.objects.store import CatalogStore, of_model
from polaris_persistence.objects.types import ObjectType

MOST_LANDMARKS: Final = 12
"""The most later commits that a cursor names."""
_SPREAD: Final = 4
"""How many times as far ahead each of these is as the one before it."""
MOST_NAMES: Final = 1_000
"""A commit that changed more names states only that, and its readers list everything."""


class CommitNames(PersistedModel):
    """The names that a commit changed, as encoded keys with the new ref (None for a removal), stored under the id of
    its head; none if there were more than MOST_NAMES."""

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
    new refs, None for a removal. `names` is None if they were not kept, are too many or cannot be read. For an
    unreadable head the time is that of its id, and there are no operations."""

    commit_id: int
    seq: int
    created_at: int
    operations: tuple[str, ...]
    names: tuple[tuple[IndexKey, ObjectRef | None], ...] | None


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Commits, oldest first, and the cursor after the last one; `more` if further ones exist already."""

    entries: tuple[FeedEntry, ...]
    cursor: str
    more: bool


class FeedCursor(NamedTuple):
    """The position after a commit (`id` 0: before the first) of a reference, which was created at a time in µs.

    `ahead` has numbers and ids of a few later commits, the nearest first: a reader that is far behind goes back from
    one of these, not from the newest commit at each page. They were no recent heads, so no reset removes them.
    """

    created_at: int
    seq: int
    id: int
    ahead: tuple[tuple[int, int], ...] = ()

    def encode(self) -> str:
        numbers = [self.created_at, self.seq, self.id, *chain.from_iterable(self.ahead)]
        return base64.urlsafe_b64encode(json.dumps(numbers).encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the cursor of a text. Raises PersistenceError (INVALID_PAGE_TOKEN)."""
        try:
            found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        except (binascii.Error, ValueError, RecursionError) as error:
            raise invalid_page_token(
                "the cursor of the feed was altered. Take a new cursor, then list everything"
            ) from error
        numbers = found if isinstance(found, list) else []
        known = range(3, 3 + 2 * MOST_LANDMARKS + 1, 2)
        if len(numbers) not in known or not all(type(number) is int and 0 <= number <= MAX_ID for number in numbers):
            raise invalid_page_token("the cursor of the feed was altered. Take a new cursor, then list everything")
        created_at, seq, id_, *ahead = numbers
        return cls(created_at, seq, id_, tuple(zip(ahead[::2], ahead[1::2], strict=True)))


class Feed:
    """The commits of one reference, whose heads hold `model`."""

    def __init__(self, store: CatalogStore, reference: str, model: type[CommitObject] = EntityHead) -> None:
        self._store = store
        self._name = reference
        self._model = model
        self._type = store.types.of(model).name

    def now(self) -> str:
        """Return the cursor after the newest commit; then list, then follow: nothing is missed. Raises
        ReferenceNotFound."""
        reference = self._store.current_reference(self._name)
        newest = next(self._back(reference.head), None)
        return FeedCursor(reference.created_at, newest[1] if newest else 0, newest[0] if newest else 0).encode()

    def read(self, cursor: str, *, limit: int = 100) -> FeedPage:
        """Return at most `limit` commits after the cursor.

        Raises PersistenceError (FEED_EXPIRED) if some are no longer kept, or the reference was reset or created again;
        PersistenceError (INVALID_PAGE_TOKEN); ReferenceNotFound; ValueError for a limit below 1.
        """
        if limit < 1:
            raise ValueError(f"the limit of a page must be at least 1, not {limit}")
        after = FeedCursor.decode(cursor)
        reference = self._store.current_reference(self._name)
        if reference.created_at != after.created_at:
            raise feed_expired(f"reference {self._name!r} was created again. Take a new cursor, then list everything")
        ahead = (later for later in after.ahead if later[0] > after.seq + limit)
        landmark = next((later for later in ahead if not isinstance(self._readable(later[1]), CorruptObject)), None)
        newer = self._newer(after, reference.head if landmark is None else landmark[1])
        page = newer[:limit]
        entries = tuple(self._entries(page))
        if len(entries) < len(page):
            raise self._expired()
        if not entries:
            return FeedPage((), cursor, False)
        # The last of `newer` is the newest commit, or one that was no recent head when it was noted.
        settled = newer[-1][1] - (RECENT_HEADS if landmark is None else 1)
        further = [later for later in after.ahead if landmark is not None and later[0] >= landmark[0]]
        last = FeedCursor(
            after.created_at,
            entries[-1].seq,
            entries[-1].commit_id,
            tuple([*_landmarks(newer[limit:], limit, settled), *further][:MOST_LANDMARKS]),
        )
        return FeedPage(entries, last.encode(), len(newer) > len(page))

    def _newer(self, after: FeedCursor, newest: int | None) -> list[tuple[int, int]]:
        """Return id and number of the commits after a cursor up to one of them, oldest first."""
        newer: list[tuple[int, int]] = []
        for id_, seq in self._back(newest):
            if seq <= after.seq:
                if id_ != after.id:
                    raise feed_expired(f"reference {self._name!r} was reset. Take a new cursor, then list everything")
                break
            newer.append((id_, seq))
        else:
            if after.seq or (newer and len(newer) < newer[0][1]) or (newest is not None and not newer):
                raise self._expired()
        return newer[::-1]

    def _expired(self) -> PersistenceError:
        return feed_expired(
            f"commits of {self._name!r} after the cursor are no longer kept. Take a new cursor, then list everything"
        )

    def _back(self, newest: int | None) -> Iterator[tuple[int, int]]:
        """Return id and number of the commits from one backwards, by every twentieth head.

        For an unreadable head the next newer readable one shows what precedes it; after twenty of them the rest counts
        as no longer kept. Raises CorruptObject if `newest` cannot be read.
        """
        ids: tuple[int, ...] = () if newest is None else (newest,)
        above, known = 0, 0  # the number of the head that names `ids`, and how many of these were returned
        while len(ids) > known:
            yield from ((id_, above - back) for back, id_ in enumerate(ids[:-1], 1) if back > known)
            at, found = len(ids), self._readable(ids[-1])
            if isinstance(found, CorruptObject):
                if not above:
                    raise found
                yield ids[-1], above - at
                while isinstance(found, CorruptObject) and at > 1:
                    at -= 1
                    found = self._readable(ids[at - 1])
            if found is None or isinstance(found, CorruptObject):
                return
            head = of_model(found, self._model).value
            if at == len(ids):
                yield ids[-1], head.seq
            ids, above, known = head.tail, head.seq, len(ids) - at

    def _readable(self, id_: int) -> Loaded[PersistedModel] | CorruptObject | None:
        return self._store.fetch_readable([ObjectRef(self._type, id_)])[0]

    def _entries(self, page: list[tuple[int, int]]) -> Iterator[FeedEntry]:
        heads = self._store.fetch_readable(ObjectRef(self._type, commit_id) for commit_id, _ in page)
        names = self._store.fetch_readable(ObjectRef(NAMES_TYPE.name, commit_id) for commit_id, _ in page)
        for (id_, seq), head, beside in zip(page, heads, names, strict=True):
            if head is None:
                return
            if isinstance(beside, CorruptObject):
                beside = None  # noqa: PLW2901 - as names that were not kept
            if isinstance(head, CorruptObject):
                yield FeedEntry(id_, seq, made_at_ms(id_) * 1_000, (), None)
                continue
            value = of_model(head, self._model).value
            noted = of_model(beside, CommitNames).value if beside else None
            changed = tuple((IndexKey(key), ref) for key, ref in noted.names) if noted and noted.complete else None
            yield FeedEntry(head.key.id, value.seq, value.created_at, value.operations, changed)


def _landmarks(rest: list[tuple[int, int]], limit: int, settled: int) -> Iterator[tuple[int, int]]:
    """Return number and id of commits after a page, up to the number `settled`."""
    at = max(limit, RECENT_HEADS)
    while at < len(rest) and rest[at][1] <= settled:
        yield rest[at][1], rest[at][0]
        at *= _SPREAD
