"""A listing of a catalog's namespaces and tables, and what could not be listed."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.items import is_answer, scope_of
from delegation.polaris.answers import (
    NoSuchNamespace,
    PolarisError,
    PolarisForbidden,
    PolarisUnexpectedAnswer,
)
from delegation.polaris.model import GenericTable
from delegation.references.blocking import UNKNOWN_AREA, Blocking, LocatedTable, Subject
from delegation.references.model import UNANSWERED_PASSES, fold
from delegation.references.reading import problem_of
from delegation.references.store import ReferenceStore
from delegation.storage.locations import AmbiguousPath, Root, UnsupportedLocation
from polaris_common.errors import DelegationError, ErrorScope

_REFUSED: Final = (PolarisForbidden, PolarisUnexpectedAnswer)


GenericTables = Callable[[str, tuple[str, ...], Callable[[], None]], Iterable[GenericTable]]
"""Returns the tables of other formats in a namespace, and calls a function before each request."""


class ListedNames(Protocol):
    """The methods of a catalog that a listing needs; PolarisClient documents the errors."""

    def list_tables(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...


class CatalogListing:
    """Lists a catalog once. `renew` and `pace` are called before each request. With `generic`, tables of other formats
    are recorded too. A namespace that may not be listed holds purges, because it may have unknown tables. Its tables in
    the index are listed anyway, so they stay there and are visited."""

    def __init__(
        self,
        store: ReferenceStore,
        lists: ListedNames,
        clock: Callable[[], datetime],
        catalog: str,
        *,
        renew: Callable[[], None],
        pace: Callable[[], None],
        known_below: Callable[[tuple[str, ...]], Iterable[TableIdentifier]],
        generic: GenericTables | None = None,
    ) -> None:
        self._store = store
        self._lists = lists
        self._clock = clock
        self._catalog = catalog
        self._renew = renew
        self._pace = pace
        self._refused: dict[Subject, Exception] = {}
        self._known_below = known_below
        self._generic = generic
        self._located: set[LocatedTable] = set()

    def namespaces(self, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
        self._ask()
        children = list[tuple[str, ...]]()
        try:
            for child in self._lists.list_namespaces(self._catalog, parent):
                children.append(child)
        except NoSuchNamespace:
            return
        except PolarisError as error:
            if not parent and is_unanswered(error):
                raise
            self.note(parent, error)
            depth = len(parent) + 1
            known = {
                identifier.namespace[:depth]
                for identifier in self._known_below(parent)
                if len(identifier.namespace) >= depth
            }
            children = sorted({*children, *known})
        for namespace in children:
            yield namespace
            yield from self.namespaces(namespace)

    def tables(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        """Yield a namespace's tables, some twice if listing is refused after a few pages. If the catalog does not
        answer, raises its error, which `note` records; `known_in` then has the tables."""
        self._ask()
        try:
            yield from self._lists.list_tables(self._catalog, namespace)
        except NoSuchNamespace:
            return
        except _REFUSED as error:
            self.note(namespace, error)
            yield from self.known_in(namespace)
        self._find_located(namespace)

    def known_in(self, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]:
        return (identifier for identifier in self._known_below(namespace) if identifier.namespace == namespace)

    def _find_located(self, namespace: tuple[str, ...]) -> None:
        if self._generic is None:
            return
        try:
            self._located.update(_located(self._generic(self._catalog, namespace, self._ask)))
        except NoSuchNamespace:
            return
        except _REFUSED as error:
            self.note(namespace, error)

    def record(self, number: int) -> list[Blocking]:
        """Record what this complete listing could not list, as of pass `number`, and remove the records of what it
        could list. Returns the blockings without an answer in too few passes to count."""
        before = {blocking.subject: blocking for blocking in self._store.unlisted(self._catalog)}
        blockings = []
        for subject, error in self._refused.items():
            known = before.get(subject)
            passes = () if known is None else known.unanswered
            if is_unanswered(error) and (known is None or passes):
                passes = tuple(dict.fromkeys((*passes, number)))[:UNANSWERED_PASSES]
            since = self._clock() if known is None else known.since
            blockings.append(Blocking(subject, problem_of(error), since, unanswered=passes))
            self._store.put_unlisted(blockings[-1])
        for subject in before.keys() - self._refused.keys():
            self._store.remove_unlisted(subject)
            self._store.remove_exemption(subject)
        if self._generic is not None:
            self._record_located()
        return [blocking for blocking in blockings if blocking.is_doubted]

    def _record_located(self) -> None:
        """Record the locations of tables of other formats. Those of unlisted namespaces stay recorded."""
        stored = set(self._store.located(self._catalog))
        for table in self._located - stored:
            self._store.put_located(table)
        now = {table.subject for table in self._located}
        refused = {subject.namespace for subject in self._refused}
        for table in stored - self._located:
            parents = (table.subject.namespace[:depth] for depth in range(len(table.subject.namespace) + 1))
            known = table.subject.record is None or not refused
            if table.subject not in now and known and refused.isdisjoint(parents):
                self._store.remove_located(table)

    def _ask(self) -> None:
        self._renew()
        self._pace()

    def note(self, namespace: tuple[str, ...], error: Exception) -> None:
        """Note that a namespace cannot be listed. Raises an error that does not concern the namespace."""
        if scope_of(error) > ErrorScope.ITEM:
            raise error
        self._refused.setdefault(Subject(self._catalog, namespace), error)


def is_unanswered(error: Exception) -> bool:
    """Return whether an error states nothing about its subject, so that others may get an answer."""
    return not is_answer(error) or not isinstance(error, DelegationError)


def _located(tables: Iterable[GenericTable]) -> Iterator[LocatedTable]:
    """Yield the tables with their areas, except tables in storage where no purge deletes."""
    for table in tables:
        try:
            area = Root.of(table.base_location).uri if table.base_location else UNKNOWN_AREA
        except AmbiguousPath:
            area = UNKNOWN_AREA
        except UnsupportedLocation:
            continue
        for folded in fold([area]):
            yield LocatedTable(Subject.of(table.identifier), folded)
