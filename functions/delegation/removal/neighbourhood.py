"""Loads the table to delete from and the tables that may share its files, and has the options that decide what is kept.

No catalog API lists locations, so a table must be loaded to find an overlap. The tables of the same namespace are
loaded, or with `overlap-scan=catalog` all tables, at a bounded rate and without vended credentials, to spare the
catalog. Credentials are vended and manifests are read only for overlapping tables (`neighbours`), and not again for a
table that the plan has already checked at the same metadata.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal, Protocol, TypeVar

from delegation.identifiers import TableIdentifier
from delegation.polaris import answers as polaris
from delegation.polaris.model import LoadedTable
from delegation.removal.errors import NeighbourUnreadable
from delegation.storage.base import ObjectStore
from delegation.storage.locations import Roots

OverlapScan = Literal["namespace", "catalog"]


class PathRules(Protocol):
    """What happens to files outside the table (`outside`), and to paths that name no object of its storage."""

    @property
    def outside(self) -> Literal["keep", "refuse", "delete"]: ...

    @property
    def unsupported(self) -> Literal["refuse", "keep"]: ...

    @property
    def ambiguous(self) -> Literal["refuse", "keep"]: ...


@dataclass(frozen=True, slots=True)
class PathOptions:
    """PathRules as a value. The defaults delete the least."""

    outside: Literal["keep", "refuse", "delete"] = "keep"
    unsupported: Literal["refuse", "keep"] = "refuse"
    ambiguous: Literal["refuse", "keep"] = "refuse"


STRICT_PATHS: Final = PathOptions()
LENIENT_PATHS: Final = PathOptions(unsupported="keep", ambiguous="keep")


class TableSource(Protocol):
    """Loads a table from its catalog."""

    def load(self) -> LoadedTable:
        """Load the table with all snapshots and vended credentials. Raises the errors of delegation.polaris."""
        ...


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another live table that may share files with the purged one, and the store from which its manifests are read.

    A `certain` one is read whatever its location, because the operator or the index names it. `areas` are the last
    known ones of a table that was recently unreadable. Unreadable files of an `exempt` one refuse no purge; with
    `unread`, only files with these digests. A `former` one is a state that its table had, whose files are kept. An
    `unlisted` one is a version of a table that no catalog lists (`removal.lost_refs`).
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
        """Return for the receipt each checked catalog, its number of tables, and the time of the check."""
        ...

    def renew(self) -> None:
        """Require a pass over each catalog that starts later than now, as for a purge submitted now."""
        ...

    def ensure_known(self) -> object:
        """Return once the required pass is made. Raises ReferencesNotKnown if another process makes it."""
        ...


def no_neighbours(_roots: Roots | None) -> Iterable[Neighbour]:
    return ()


class SearchOptions(Protocol):
    """What an operation does about files outside its table, and about unreadable other tables. `execute_plan` is the id
    of an earlier plan to execute."""

    @property
    def execute_plan(self) -> str | None: ...

    @property
    def outside(self) -> str: ...

    @property
    def neighbour(self) -> str: ...


T = TypeVar("T")


class Catalog(Protocol):
    """The catalog methods that a purge needs. PolarisClient documents the errors."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable: ...

    def load_if_changed(self, identifier: TableIdentifier, etag: str | None) -> LoadedTable | None: ...

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True)
class OneTable:
    """A TableSource for one identifier of a catalog."""

    catalog: Catalog
    identifier: TableIdentifier

    def load(self) -> LoadedTable:
        return self.catalog.load_table(self.identifier)


class Pace:
    """Limits the rate of calls, also from several threads. An unused share does not accumulate."""

    def __init__(self, per_second: float, *, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._gap = 1.0 / per_second
        self._now = now
        self._sleep = sleep
        self._next = now()
        self._lock = Lock()

    def wait(self) -> None:
        """Return when the next call may start."""
        with self._lock:
            early = self._next - self._now()
            self._next = max(self._next, self._now()) + self._gap
        if early > 0:
            self._sleep(early)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """`PurgeContext.neighbours`: the live tables except `identifier`, each loaded when it is needed. A table that was
    dropped after the listing, or without its metadata file, is skipped. A table or list with access denied is yielded
    as NeighbourUnreadable, because shared files could be lost. PolarisUnavailable and the errors of `checkpoint`, which
    is called before each load, are raised unchanged."""

    catalog: Catalog
    identifier: TableIdentifier
    store_of: Callable[[TableIdentifier], ObjectStore]
    scan: OverlapScan
    checkpoint: Callable[[], None]
    pace: Pace

    def __call__(self, _roots: Roots | None) -> Iterator[Neighbour | NeighbourUnreadable]:
        """Yield every table of the scan. No catalog lists locations, so overlaps are known only after the load."""
        for namespace in self._namespaces():
            if isinstance(namespace, NeighbourUnreadable):
                yield namespace
                continue
            for identifier in self._listed("tables", self.catalog.list_tables, namespace):
                if isinstance(identifier, NeighbourUnreadable):
                    yield identifier
                elif identifier != self.identifier:
                    self.checkpoint()
                    self.pace.wait()
                    yield from loaded_neighbour(self.catalog, identifier, self.store_of)

    def _namespaces(self) -> Iterator[tuple[str, ...] | NeighbourUnreadable]:
        yield self.identifier.namespace
        if self.scan == "catalog":
            below = self._below(())
            yield from (namespace for namespace in below if namespace != self.identifier.namespace)

    def _below(self, parent: tuple[str, ...]) -> Iterator[tuple[str, ...] | NeighbourUnreadable]:
        for namespace in self._listed("namespaces", self.catalog.list_namespaces, parent):
            yield namespace
            if not isinstance(namespace, NeighbourUnreadable):
                yield from self._below(namespace)

    def _listed(
        self, what: str, names: Callable[[str, tuple[str, ...]], Iterator[T]], namespace: tuple[str, ...]
    ) -> Iterator[T | NeighbourUnreadable]:
        try:
            yield from names(self.identifier.catalog, namespace)
        except polaris.NoSuchNamespace:
            return
        except (polaris.PolarisForbidden, polaris.PolarisUnexpectedAnswer) as error:
            parent = ".".join((self.identifier.catalog, *namespace))
            yield NeighbourUnreadable(f"the list of {what} of {parent}", error)


def loaded_neighbour(
    catalog: Catalog,
    identifier: TableIdentifier,
    store_of: Callable[[TableIdentifier], ObjectStore],
    *,
    certain: bool = False,
    gone: Callable[[TableIdentifier], None] = lambda _identifier: None,
) -> Iterator[Neighbour | NeighbourUnreadable]:
    """Load a table without credentials and yield it, or why it cannot be read. Yields nothing for a table without its
    metadata file, and for one that was dropped or renamed, for which it calls `gone`."""
    try:
        table = catalog.load_table(identifier, vend=False)
    except (polaris.NoSuchTable, polaris.NoSuchNamespace):
        gone(identifier)
    except polaris.TableMetadataMissing:
        return
    except (polaris.PolarisForbidden, polaris.PolarisUnexpectedAnswer, polaris.CredentialVendingFailed) as error:
        yield NeighbourUnreadable(str(identifier), error)
    else:
        yield Neighbour(table, store_of(identifier), certain=certain)
