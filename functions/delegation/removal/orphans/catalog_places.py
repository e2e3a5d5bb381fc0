"""The locations of catalogs' namespaces and views, as far as a removal of orphan files needs them. Tables, and tables
of other formats, come from the reference index. A namespace or view with an unknown location holds the removal, because
it may be inside."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    PolarisUnexpectedAnswer,
    TableMetadataMissing,
)
from delegation.polaris.model import VIEW
from delegation.removal.orphans.errors import places_unknown
from delegation.removal.orphans.place import Place

_METADATA_PATH: Final = "write.metadata.path"


class NamesAndViews(Protocol):
    """The catalog methods needed here. PolarisClient implements them and documents their errors."""

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...

    def namespace_location(self, catalog: str, namespace: tuple[str, ...]) -> str | None: ...

    def list_others(self, kind: str, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def load_other(self, kind: str, identifier: TableIdentifier) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class CatalogPlaces:
    """`OrphanContext.places` of some catalogs. `before` is called before each request, and may raise or wait."""

    client: NamesAndViews
    catalogs: Sequence[str]
    before: Callable[[], None] = lambda: None

    def __call__(self) -> Iterator[Place]:
        """Yield the places. Raises GuardRefused (PLACES_UNKNOWN), and the errors of a catalog that does not answer."""
        for catalog in self.catalogs:
            for namespace in self._below(catalog, ()):
                yield from self._namespace(catalog, namespace)
                yield from self._views(catalog, namespace)

    def _below(self, catalog: str, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        self.before()
        try:
            namespaces = list(self.client.list_namespaces(catalog, parent))
        except NoSuchNamespace:
            return
        except (PolarisForbidden, PolarisUnexpectedAnswer) as error:
            raise places_unknown(f"the namespaces in {_dotted(catalog, parent)}", error) from error
        for namespace in namespaces:
            yield namespace
            yield from self._below(catalog, namespace)

    def _namespace(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[Place]:
        self.before()
        name = _dotted(catalog, namespace)
        try:
            location = self.client.namespace_location(catalog, namespace)
        except NoSuchNamespace:
            return
        except (PolarisForbidden, PolarisUnexpectedAnswer) as error:
            raise places_unknown(f"the namespace {name}", error) from error
        if location is not None:
            yield Place("namespace", name, location)

    def _views(self, catalog: str, namespace: tuple[str, ...]) -> Iterator[Place]:
        self.before()
        try:
            views = list(self.client.list_others(VIEW, catalog, namespace))
        except NoSuchNamespace:
            return
        except (PolarisForbidden, PolarisUnexpectedAnswer) as error:
            raise places_unknown(f"the views in {_dotted(catalog, namespace)}", error) from error
        for view in views:
            self.before()
            try:
                document = self.client.load_other(VIEW, view)
            except (NoSuchTable, NoSuchNamespace, TableMetadataMissing):
                continue  # dropped meanwhile, or nobody can read it
            except (PolarisForbidden, PolarisUnexpectedAnswer) as error:
                raise places_unknown(f"the view {view}", error) from error
            yield from _places_of(str(view), document)


def _places_of(view: str, document: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the locations of a view and its metadata files: the current ones, and the next ones by its property."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    location, current = metadata.get("location"), document.get("metadata-location")
    for written in (location, current):
        if not isinstance(written, str) or not written:
            raise places_unknown(f"the view {view}", None)
    yield Place("view", view, str(location))
    properties = metadata.get("properties")
    following = properties.get(_METADATA_PATH) if isinstance(properties, Mapping) else None
    for written in (current, following):
        if isinstance(written, str) and written:
            yield Place("view", view, written, is_of_metadata=True)


def _dotted(catalog: str, namespace: tuple[str, ...]) -> str:
    return ".".join((catalog, *namespace))
