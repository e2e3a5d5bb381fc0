"""What a table store must offer: point reads and writes of rows, and conditions on a single row (proposal, Goals)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, Self, TypeVar

from delegation.persistence.errors import ObjectTooLarge

PART_BYTES: Final = 350_000
"""The most one row's value holds: DynamoDB's 400 KB limit counts keys and attribute names too."""
MAX_PARTS: Final = 1_000
RECENT_HEADS: Final = 20
MAX_ID: Final = 2**63 - 1
SYSTEM: Final = ""
"""The realm (and catalog) of what belongs to no tenant, node leases for instance."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """The primary key of an object (proposal, Objects); `id` is 0..2^63-1."""

    realm: str
    catalog: str
    type: str
    id: int

    def __post_init__(self) -> None:
        if not 0 <= self.id <= MAX_ID:
            raise ValueError(f"an object id has 63 bits, {self.id} has not")


@dataclass(frozen=True, slots=True)
class Locator:
    """A key and how many parts its value is believed to have; a wrong belief costs a round trip, never an answer."""

    key: ObjectKey
    parts: int = 1


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object's row: `token` is set on updateable objects only, `created_at` is in µs since 1970 UTC."""

    key: ObjectKey
    value: bytes
    created_at: int
    token: str | None = None


@dataclass(frozen=True, slots=True)
class ScannedRow:
    """One row as a scan sees it, without its value; an object of several parts has several."""

    key: ObjectKey
    parts: int
    created_at: int
    token: str | None


@dataclass(frozen=True, slots=True)
class ScanPage:
    """Rows and where to go on; `after` is None at the end. A page may be empty before the end."""

    rows: tuple[ScannedRow, ...]
    after: str | None


@dataclass(frozen=True, slots=True, order=True)
class ReferenceKey:
    """The primary key of a reference (proposal, Reference)."""

    realm: str
    catalog: str
    name: str


@dataclass(frozen=True, slots=True)
class Reference:
    """The pointer to the current head: `heads` are ids, the current one first, then the RECENT_HEADS - 1 before it.

    `version` counts the changes, so a compare-and-set that arrives late never finds an old state come back.
    """

    key: ReferenceKey
    heads: tuple[int, ...]
    created_at: int
    version: int = 0

    @property
    def head(self) -> int | None:
        """The id of the current head object; None while nothing was committed."""
        return self.heads[0] if self.heads else None

    def moved_to(self, head: int) -> Self:
        """The reference after one move to `head`."""
        return replace(self, heads=(head, *self.heads)[:RECENT_HEADS], version=self.version + 1)

    def fenced(self) -> Self:
        """The reference with the same heads, on which no compare-and-set succeeds that was prepared before."""
        return replace(self, version=self.version + 1)


@dataclass(frozen=True, slots=True)
class Refused(Generic[T]):
    """A condition did not hold; `stored` is what stands there instead, None if nothing does."""

    stored: T | None


class Backend(Protocol):
    """A store of objects and references, shared by threads and processes.

    Methods raise BackendUnavailable when the store does not answer. After that a conditional write was not applied;
    put_many and delete_many, which work row by row, may have got half-way, and repeat safely. A conditional write that
    may have been applied is never repeated but raises OutcomeUnknown; answered with None, it was applied.
    """

    def fetch_many(self, wanted: Iterable[Locator], *, consistent: bool = True) -> dict[ObjectKey, StoredObject]:
        """The objects that exist. `consistent=False` may be cheaper and is for immutable ones: found ones are right
        and absent ones are asked for again consistently."""

    def put_many(self, objects: Iterable[StoredObject]) -> None:
        """Write immutable objects, of any size up to MAX_PARTS parts.

        Raises ObjectTooLarge, and ValueError for one key with two contents.
        """

    def delete_many(self, doomed: Iterable[Locator]) -> None:
        """Remove objects with the parts stated; absent ones are no error."""

    def insert(self, new: StoredObject) -> Refused[StoredObject] | None:
        """Write if the key is free. The value must fit one row: ObjectTooLarge."""

    def update(self, new: StoredObject, *, expected: str) -> Refused[StoredObject] | None:
        """Replace if the version token stored is `expected`. The value must fit one row: ObjectTooLarge."""

    def delete(self, key: ObjectKey, *, expected: str) -> Refused[StoredObject] | None:
        """Remove if the version token stored is `expected`."""

    def scan(self, *, realm: str | None = None, after: str | None = None, limit: int = 1_000) -> ScanPage:
        """Some `limit` rows in no particular order; what is written meanwhile may or may not show."""

    def read_reference(self, key: ReferenceKey) -> Reference | None:
        """The reference as of now (a consistent read)."""

    def create_reference(self, new: Reference) -> Refused[Reference] | None:
        """Write if the key is free."""

    def replace_reference(self, new: Reference, *, expected: Reference) -> Refused[Reference] | None:
        """Replace if heads and version stored are those of `expected`."""

    def references(self, *, realm: str | None = None) -> Iterator[Reference]:
        """All references, in no particular order."""

    def delete_reference(self, key: ReferenceKey) -> None:
        """Remove a reference with its catalog or realm; absent is no error."""


def part_count(size: int, part_bytes: int = PART_BYTES) -> int:
    """How many rows a value of `size` bytes takes. Raises ObjectTooLarge."""
    parts = max(1, -(-size // part_bytes))
    if parts > MAX_PARTS:
        raise ObjectTooLarge(f"a value of {size} bytes takes {parts} rows, at most {MAX_PARTS} are allowed")
    return parts


def distinct(objects: Iterable[StoredObject]) -> list[StoredObject]:
    """The objects of a batch, each key once; ValueError for one key with two contents."""
    by_key: dict[ObjectKey, StoredObject] = {}
    for one in objects:
        if by_key.setdefault(one.key, one) != one:
            raise ValueError(f"two different objects with the key {one.key} in one batch")
    return list(by_key.values())


def hints(wanted: Iterable[Locator]) -> dict[ObjectKey, int]:
    """The keys of a batch, each once with the most parts stated for it."""
    parts: dict[ObjectKey, int] = {}
    for one in wanted:
        parts[one.key] = min(max(parts.get(one.key, 1), one.parts), MAX_PARTS)
    return parts


def fits_one_row(one: StoredObject, part_bytes: int = PART_BYTES) -> None:
    """Raise ObjectTooLarge unless a condition on one row covers the whole object."""
    if len(one.value) > part_bytes:
        raise ObjectTooLarge(f"an updateable object has at most {part_bytes} bytes, {one.key} has {len(one.value)}")
