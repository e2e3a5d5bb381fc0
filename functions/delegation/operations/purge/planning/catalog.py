"""The catalog as a purge sees it: the table to be purged, and the tables beside it that may share its files.

No API of a catalog lists locations, so whether a neighbour's overlaps is known only once it is loaded. Asked are the
tables of the same namespace, those of the whole catalog only on demand (`overlap-scan=catalog`), at a bounded rate and
without vended credentials: we are here to relieve the catalog. Credentials are vended, and manifests read, only for
those that do overlap (`neighbours`), and for none that a plan has looked at already at the same metadata.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from delegation.identifiers import TableIdentifier
from delegation.operations.purge.context import Neighbour
from delegation.operations.purge.errors import NeighbourUnreadable
from delegation.operations.purge.options import OverlapScan
from delegation.polaris import errors as polaris
from delegation.polaris.model import LoadedTable
from delegation.storage.base import ObjectStore

T = TypeVar("T")


class Catalog(Protocol):
    """As much of a catalog as a purge needs; PolarisClient is one and says what each method raises."""

    def load_table(self, identifier: TableIdentifier, *, vend: bool = True, snapshots: str = "all") -> LoadedTable: ...

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...


@dataclass(frozen=True, slots=True)
class OneTable:
    """context.TableSource for one identifier of a catalog."""

    catalog: Catalog
    identifier: TableIdentifier

    def load(self) -> LoadedTable:
        """See TableSource.load."""
        return self.catalog.load_table(self.identifier)


class Pace:
    """Lets through at most so many a second; what was not used is not saved up."""

    def __init__(self, per_second: float, *, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._gap = 1.0 / per_second
        self._now = now
        self._sleep = sleep
        self._next = now()

    def wait(self) -> None:
        """Return when the next may go."""
        early = self._next - self._now()
        if early > 0:
            self._sleep(early)
        self._next = max(self._next, self._now()) + self._gap


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """`PurgeContext.neighbours`: the live tables beside `identifier`, loaded one by one as they are asked for.

    One that went between being listed and being loaded, or whose metadata is gone, protects nothing and is passed over.
    Raises NeighbourUnreadable where the service may not look, for what it would find there cannot be given back once it
    is deleted; what passes by itself (PolarisUnavailable) comes through unchanged, and so does what `checkpoint` raises
    before each load.
    """

    catalog: Catalog
    identifier: TableIdentifier
    store_of: Callable[[TableIdentifier], ObjectStore]
    scan: OverlapScan
    checkpoint: Callable[[], None]
    pace: Pace

    def __call__(self) -> Iterator[Neighbour]:
        for namespace in self._namespaces():
            for identifier in self._listed("tables", self.catalog.list_tables, namespace):
                if identifier == self.identifier:
                    continue
                self.checkpoint()
                self.pace.wait()
                table = self._load(identifier)
                if table is not None:
                    yield Neighbour(table, self.store_of(identifier))

    def _namespaces(self) -> Iterator[tuple[str, ...]]:
        yield self.identifier.namespace
        if self.scan == "catalog":
            below = self._below(())
            yield from (namespace for namespace in below if namespace != self.identifier.namespace)

    def _below(self, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for namespace in self._listed("namespaces", self.catalog.list_namespaces, parent):
            yield namespace
            yield from self._below(namespace)

    def _listed(
        self, what: str, names: Callable[[str, tuple[str, ...]], Iterator[T]], namespace: tuple[str, ...]
    ) -> Iterator[T]:
        try:
            yield from names(self.identifier.catalog, namespace)
        except polaris.NoSuchNamespace:
            return
        except (polaris.PolarisForbidden, polaris.PolarisUnexpectedAnswer) as error:
            parent = ".".join((self.identifier.catalog, *namespace))
            raise NeighbourUnreadable(f"the list of {what} of {parent}", error) from error

    def _load(self, identifier: TableIdentifier) -> LoadedTable | None:
        try:
            return self.catalog.load_table(identifier, vend=False)
        except (polaris.NoSuchTable, polaris.NoSuchNamespace, polaris.TableMetadataMissing):
            return None
        except (polaris.PolarisForbidden, polaris.PolarisUnexpectedAnswer, polaris.CredentialVendingFailed) as error:
            raise NeighbourUnreadable(str(identifier), error) from error
