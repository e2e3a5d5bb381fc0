"""What an operation that deletes asks about the tables around its own."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from delegation.identifiers import TableIdentifier
from delegation.keeping.errors import NeighbourUnreadable
from delegation.polaris.model import LoadedTable
from delegation.storage.base import ObjectStore
from delegation.storage.locations import Roots


class TableSource(Protocol):
    """Loads a table from its catalog."""

    def load(self) -> LoadedTable:
        """Load the table with all snapshots and vended credentials; raise the errors of delegation.polaris."""
        ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another live table that may share files with the purged one, and the store that its manifests are read from.

    A `certain` one is read whatever its location, because the operator or the index names it. `areas` are the last
    known ones of a table that could not be read lately; what cannot be read of an `exempt` one refuses no purge, of
    one with `unread` files, by their digests, only these.
    A `former` one is a state that its table had, whose files are kept (`keeping.lost`); an `unlisted` one is a version
    of a table that no catalog lists (`keeping.unlisted`).
    """

    table: LoadedTable
    store: ObjectStore
    certain: bool = False
    areas: tuple[str, ...] = ()
    exempt: bool = False
    former: bool = False
    unlisted: bool = False
    unread: frozenset[bytes] | None = None


class ReferenceCheck(Protocol):
    """The reference index as `neighbours` uses it."""

    def summary(self) -> list[dict[str, Any]]:
        """Return for the receipt what was checked: each catalog, its number of tables, and as of when."""
        ...

    def renew(self) -> None:
        """Require a pass over each catalog that begins later than now, as for a purge that is submitted now."""
        ...

    def ensure_known(self) -> object:
        """Return once the pass that is required was made; raise ReferencesNotKnown if another process makes it."""
        ...


def no_neighbours(_roots: Roots | None) -> Iterable[Neighbour]:
    return ()


class SearchSettings(Protocol):
    """How the files of other tables are read; `vended` is false where the operator's credentials reach every file."""

    @property
    def read_threads(self) -> int: ...

    @property
    def max_file_bytes(self) -> int: ...

    @property
    def vended(self) -> bool: ...


class SearchOptions(Protocol):
    """What an operation does about files outside its table, and about other tables that cannot be read."""

    @property
    def outside(self) -> str: ...

    @property
    def neighbour(self) -> str: ...


class Checkpointed(Protocol):
    """An attempt that may end between two steps."""

    def checkpoint(self) -> None:
        """Raise RunStopped or another error if no further step may begin."""
        ...


class Search(Protocol):
    """An operation on the table `identifier`, as far as the search for other tables' files needs it.

    `neighbours` yields the live tables that may overlap locations, all for None, and an error for a table or list that
    cannot be loaded.
    """

    @property
    def attempt(self) -> Checkpointed: ...

    @property
    def identifier(self) -> TableIdentifier: ...

    @property
    def settings(self) -> SearchSettings: ...

    @property
    def options(self) -> SearchOptions: ...

    @property
    def neighbours(self) -> Callable[[Roots | None], Iterable[Neighbour | NeighbourUnreadable]]: ...
