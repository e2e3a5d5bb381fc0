"""What a table store must offer: point reads and writes of rows, and conditions on a single row."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import quote

from polaris_common.errors import printable
from polaris_persistence.errors import ObjectTooLarge, PersistenceError

PART_BYTES: Final = 350_000
"""The largest value of one row; DynamoDB's limit of 400 KB counts keys and attribute names too."""
MAX_PARTS: Final = 1_000
MAX_KEY_BYTES: Final = 2_048
"""The longest partition key of DynamoDB (Amazon DynamoDB, Constraints: Partition keys and sort keys)."""
RECENT_HEADS: Final = 20
COPIED_BYTES: Final = 4_096
"""A head up to this size is copied into the row of its reference, which saves the read of the head."""
MAX_ID: Final = 2**63 - 1
CLOSED: Final = 0
"""The head id of a closed reference; no object has it."""
SYSTEM: Final = ""
"""The realm and catalog of objects that belong to no tenant, such as node leases."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """The primary key of an object (NoSQL persistence proposal, Objects); `id` is 0..2^63-1."""

    realm: str
    catalog: str
    type: str
    id: int

    def __post_init__(self) -> None:
        if not 0 <= self.id <= MAX_ID:
            raise ValueError(f"{self.id} is not an object id, which has at most 63 bits")


@dataclass(frozen=True, slots=True)
class Locator:
    """An object's key and the expected number of its parts; a wrong number costs a round trip, never a wrong result."""

    key: ObjectKey
    parts: int = 1


@dataclass(frozen=True, slots=True)
class StoredObject:
    """A stored object. Only updateable objects have a `token`; `created_at` is in µs since 1970 UTC."""

    key: ObjectKey
    value: bytes
    created_at: int
    token: str | None = None


@dataclass(frozen=True, slots=True)
class ScannedRow:
    """One row of a scan, without its value; an object of several parts has several rows."""

    key: ObjectKey
    parts: int
    created_at: int
    token: str | None


@dataclass(frozen=True, slots=True)
class ScanPage:
    """Rows and the position to continue after, None at the end. A page before the end may be empty.

    `unread` counts unreadable rows, which are no object of this release.
    """

    rows: tuple[ScannedRow, ...]
    after: str | None
    unread: int = 0


class Segment(NamedTuple):
    """One of `of` disjoint parts of the objects, which are scanned independently; `number` counts from 0."""

    number: int
    of: int


WHOLE: Final = Segment(0, 1)


@dataclass(frozen=True, slots=True, order=True)
class ReferenceKey:
    """The primary key of a reference (NoSQL persistence proposal, Reference)."""

    realm: str
    catalog: str
    name: str


@dataclass(frozen=True, slots=True)
class HeadCopy:
    """The stored form of a small head object, repeated in the row of the reference that points to it."""

    id: int
    value: bytes
    created_at: int


@dataclass(frozen=True, slots=True)
class ObjectCopy:
    """The stored form of a small immutable object, repeated in the row of a reference whose head names it."""

    type: str
    id: int
    created_at: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Reference:
    """The pointer to the current head: `heads` are ids, the current one first, then the RECENT_HEADS - 1 before it.

    `version` counts the changes and never repeats, so a compare-and-set that arrives late always fails. `waiting` are
    the ids of the changes to be combined into a commit. `copy` is the head object itself if it is small; `copies` are
    some objects that it names, if its committers copy them. These three change without a new version or repeat what is
    stored elsewhere, so comparisons of references ignore them. `problem` is why the stored row cannot be read: then
    only its key is known, with unreadable parts empty.
    """

    key: ReferenceKey
    heads: tuple[int, ...]
    created_at: int
    version: int = 0
    waiting: tuple[int, ...] = field(default=(), compare=False)
    copy: "HeadCopy | None" = field(default=None, compare=False, repr=False)
    copies: tuple[ObjectCopy, ...] = field(default=(), compare=False, repr=False)
    problem: str | None = None

    @property
    def head(self) -> int | None:
        """Return the id of the current head object; None before the first commit."""
        return self.heads[0] if self.heads else None

    @property
    def closed(self) -> bool:
        """Whether its objects are being removed: it accepts no commit, and no reader uses it."""
        return self.head == CLOSED

    def closing(self) -> "Reference":
        """Return the closed reference, which still lists the heads. A former release finds its head missing."""
        return replace(self, heads=(CLOSED, *self.heads), version=self.version + 1, copy=None, copies=())

    def is_older_than(self, other: "Reference") -> bool:
        """Return whether `other` is a later state of the same reference, not of one created again under its name."""
        return self.created_at == other.created_at and self.version < other.version

    def moved_to(
        self,
        head: int,
        *,
        done: Iterable[int] = (),
        copy: "HeadCopy | None" = None,
        copies: Iterable[ObjectCopy] = (),
    ) -> Self:
        """Return the reference after one move to `head`, in which the waiting changes `done` are combined."""
        return replace(
            self,
            heads=(head, *self.heads)[:RECENT_HEADS],
            version=self.version + 1,
            waiting=tuple(sorted(set(self.waiting) - set(done))),
            copy=copy,
            copies=tuple(copies),
        )

    def fenced(self) -> Self:
        """Return the same heads at the next version: every compare-and-set prepared before it fails."""
        return replace(self, version=self.version + 1)


@dataclass(frozen=True, slots=True)
class Refused(Generic[T]):
    """A condition did not hold; `stored` is the present object or reference, None if there is none."""

    stored: T | None


class Backend(Protocol):
    """A store of objects and references, shared by threads and processes.

    Methods raise BackendUnavailable if the store does not answer, with the code PERSISTENCE_REFUSED if a repeat would
    fail too. A conditional write was not applied then; put_many and delete_many work row by row, may be half done, and
    can be repeated safely. A conditional write returns None once it is applied; one that may have been applied is not
    repeated but raises CommitOutcomeUnknown.
    """

    @property
    def longest_call(self) -> float:
        """The longest usual time of a method, in seconds, after its last check of the deadline.

        Each call of a method starts with `deadlines.check_time` and is given up after `deadlines.seconds_left`.
        """

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        """Return the existing objects. `consistent=False` may be cheaper, for immutable objects: absent ones are read
        again."""

    def put_many(self, objects: Iterable[StoredObject]) -> None:
        """Write immutable objects of up to MAX_PARTS parts. Raises ObjectTooLarge and PersistenceError (NAME_TOO_LONG)
        before anything is written; ValueError for one key with two contents."""

    def delete_many(self, locators: Iterable[Locator]) -> None:
        """Delete objects with the stated parts; an absent one is no error."""

    def insert(self, new: StoredObject) -> Refused[StoredObject] | None:
        """Write if the key is absent. Raises ObjectTooLarge if the value does not fit one row."""

    def update(self, new: StoredObject, *, expected: str) -> Refused[StoredObject] | None:
        """Replace if the stored version token is `expected`. Raises ObjectTooLarge as insert does."""

    def delete(self, key: ObjectKey, *, expected: str) -> Refused[StoredObject] | None:
        """Delete if the stored version token is `expected`."""

    def scan(
        self, *, realm: str | None = None, after: str | None = None, limit: int = 1_000, segment: Segment = WHOLE
    ) -> ScanPage:
        """Return about `limit` rows of a segment in no particular order, perhaps with rows written meanwhile.

        A row belongs to the same one of `segment.of` segments in every call.
        """

    def read_reference(self, key: ReferenceKey) -> Reference | None:
        """Return the current reference by a consistent read."""

    def create_reference(self, new: Reference) -> Refused[Reference] | None:
        """Write if the key is absent. Raises PersistenceError (NAME_TOO_LONG)."""

    def replace_reference(self, new: Reference, *, expected: Reference) -> Refused[Reference] | None:
        """Replace if the stored heads and version are those of `expected`.

        Waiting ids that are in `expected` but not in `new` are removed; others, added meanwhile, stay.
        """

    def add_waiting(self, ids: Collection[int], *, expected: Reference) -> Refused[Reference] | None:
        """Add to the waiting ids of a reference if the stored version is that of `expected`. The version stays."""

    def withdraw(self, key: ReferenceKey, waiting: int, *, fenced: bool = True) -> Refused[Reference] | None:
        """Remove one waiting id if it is there. `fenced` raises the version too: whoever read the id cannot combine
        it."""

    def references(self, *, realm: str | None = None) -> Iterator[Reference]:
        """Return all references, in no particular order; an unreadable row has a `problem`."""

    def delete_reference(self, key: ReferenceKey) -> None:
        """Delete the reference of a dropped catalog or purged realm; an absent one is no error."""

    def time(self) -> int:
        """Return the time by the store's clock, never by this process': µs since 1970, exact to a second."""

    def estimated_time(self) -> int | None:
        """Return `time` without a call, from the newest answer and the monotonic time since; None before the first."""


def key_text(*fields: str) -> str:
    """Return the text that names a key's row: its fields percent-encoded, with slashes between."""
    return "/".join(quote(field, safe="") for field in fields)


def check_key(key: "ObjectKey | ReferenceKey") -> None:
    """Raise PersistenceError (NAME_TOO_LONG) if no row can have this key, before anything is written."""
    named = (key.type, str(key.id)) if isinstance(key, ObjectKey) else (key.name,)
    size = len(key_text(key.realm, key.catalog, *named))
    if size > MAX_KEY_BYTES:
        raise PersistenceError(
            f"the key of realm {printable(key.realm, 40)!r}, catalog {printable(key.catalog, 40)!r} and "
            f"{printable(named[0], 40)!r} has {size} bytes percent-encoded; at most {MAX_KEY_BYTES} are allowed. "
            "Choose shorter names",
            code="NAME_TOO_LONG",
        )


def part_count(size: int, part_bytes: int = PART_BYTES) -> int:
    """Return how many rows a value of `size` bytes takes. Raises ObjectTooLarge."""
    parts = max(1, -(-size // part_bytes))
    if parts > MAX_PARTS:
        raise ObjectTooLarge(
            f"a value of {size} bytes takes {parts} rows; at most {MAX_PARTS} are allowed. Store a smaller value"
        )
    return parts


def distinct(objects: Iterable[StoredObject]) -> list[StoredObject]:
    """Return the objects of a batch, each key once.

    Raises PersistenceError (NAME_TOO_LONG); ValueError for one key with two contents.
    """
    by_key: dict[ObjectKey, StoredObject] = {}
    for new in objects:
        check_key(new.key)
        if by_key.setdefault(new.key, new) != new:
            raise ValueError(f"one batch has two different objects with the key {new.key}")
    return list(by_key.values())


def hints(wanted: Iterable[Locator]) -> dict[ObjectKey, int]:
    """Return the keys of a batch, each with the largest number of parts stated for it."""
    parts: dict[ObjectKey, int] = {}
    for locator in wanted:
        parts[locator.key] = min(max(parts.get(locator.key, 1), locator.parts), MAX_PARTS)
    return parts


def check_fits_one_row(new: StoredObject, part_bytes: int = PART_BYTES) -> None:
    """Raise ObjectTooLarge unless a condition on one row covers the object, PersistenceError (NAME_TOO_LONG) for its
    key."""
    check_key(new.key)
    if len(new.value) > part_bytes:
        raise ObjectTooLarge(f"{new.key} has {len(new.value)} bytes; an updateable object has at most {part_bytes}")
