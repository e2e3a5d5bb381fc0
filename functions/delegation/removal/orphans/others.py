"""Where others may have files: views, namespaces, tables of other formats, and unfinished tasks.

Where the namespaces and views of catalogs are, as far as a removal of orphan files has to know them.
Tables, and tables of other formats, come from the reference index. A namespace or view of which the location is not
known holds the removal back: it may be inside.

What other unfinished tasks may do to files: their published plans, and the tables that they are about.
They are found in the index of due tasks, which has every unfinished one. A task of the last second may be missing
there; it has published no plan yet. One that cannot be read holds the removals of its catalog alone.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
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
from delegation.removal.details import PlanDetails, catalog_of, is_without_table, table_place
from delegation.removal.orphans.context import Claim
from delegation.removal.orphans.errors import places_unknown
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.task_type import PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.errors import MalformedRecord
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService
from polaris_common.errors import printable

_METADATA_PATH: Final = "write.metadata.path"


class NamesAndViews(Protocol):
    """As much of a catalog as is needed here; PolarisClient is one and documents what each method raises."""

    def list_namespaces(self, catalog: str, parent: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]: ...

    def namespace_location(self, catalog: str, namespace: tuple[str, ...]) -> str | None: ...

    def list_others(self, kind: str, catalog: str, namespace: tuple[str, ...]) -> Iterator[TableIdentifier]: ...

    def load_other(self, kind: str, identifier: TableIdentifier) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class CatalogPlaces:
    """`OrphanContext.places` of some catalogs; `before` is called before each request, and may raise or wait."""

    client: NamesAndViews
    catalogs: Sequence[str]
    before: Callable[[], None] = lambda: None

    def __call__(self) -> Iterator[Place]:
        """Yield the places; raise GuardRefused (PLACES_UNKNOWN), and the errors of a catalog that does not answer."""
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
            raise places_unknown(f"the list of namespaces of {_dotted(catalog, parent)}", error) from error
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
            raise places_unknown(f"the list of views of {_dotted(catalog, namespace)}", error) from error
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
    """Yield where a view and its metadata files are: the current one, and the next ones by its property."""
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


_ANY_TIME: Final = timedelta(days=36_500)
_AT_ONCE: Final = 100
_FIRST_LOOK: Final = 1_000
_OWN: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})


def claims_of(tasks: TaskService, catalogs: Collection[str], checkpoint: Callable[[], None]) -> Iterator[Claim]:
    """Yield the claims of all unfinished tasks but those of removals of orphan files.

    A task that cannot be read claims all of its catalog if that is one of `catalogs`, and everything if its catalog
    cannot be read either. `checkpoint` is called before each read, and may raise RunStopped.
    """
    ids = _unfinished(tasks, checkpoint)
    for first in range(0, len(ids), _AT_ONCE):
        checkpoint()
        some = ids[first : first + _AT_ONCE]
        try:
            tasks_by_id = tasks.reads.find_many(some)
        except MalformedRecord:
            yield from _one_by_one(tasks, some, catalogs, checkpoint)
        else:
            for task in tasks_by_id.values():
                yield from _claims(task, catalogs)


def _one_by_one(
    tasks: TaskService, ids: Sequence[str], catalogs: Collection[str], checkpoint: Callable[[], None]
) -> Iterator[Claim]:
    for task_id in ids:
        checkpoint()
        try:
            task = tasks.reads.find(task_id)
        except MalformedRecord as error:
            if error.stored.get("task_type") not in _OWN:
                yield from _unread(task_id, str(error), _payload(tasks, task_id, error.stored), error.stored, catalogs)
        else:
            yield from () if task is None else _claims(task, catalogs)


def _payload(tasks: TaskService, task_id: str, stored: Mapping[str, Any]) -> Any:
    """Return the payload of a record that cannot be read, that of the task's first version if it shows no table."""
    payload = stored.get("task_payload")
    if table_place(payload) is None:
        with suppress(MalformedRecord):
            first = tasks.reads.store.get_version(task_id, 1)
            return payload if first is None else first.task_payload
    return payload


def _unread(
    task_id: str, reason: str, payload: Any, stored: Mapping[str, Any], catalogs: Collection[str]
) -> Iterator[Claim]:
    """Yield the claim of a task that cannot be read; one without a table and without a plan has none."""
    what = f"task {printable(task_id)}, which cannot be read ({printable(reason)})"
    if is_without_table(payload) and stored.get("plan_segments") == []:
        return
    catalog = catalog_of(payload)
    table_uuid, location = table_place(payload) or ("", "")
    yield Claim(what, table_uuid, "" if not catalog or catalog in catalogs else location, None, unread=True)


def _unfinished(tasks: TaskService, checkpoint: Callable[[], None]) -> list[str]:
    limit = _FIRST_LOOK
    while True:
        checkpoint()
        entries = tasks.reads.due(tasks.clock() + _ANY_TIME, limit=limit)
        if len(entries) < limit:
            return list(dict.fromkeys(entry.task_id for entry in entries))
        limit *= 8


def _claims(task: Task, catalogs: Collection[str]) -> Iterator[Claim]:
    if task.is_terminal or task.task_type in _OWN:
        return
    try:
        segments = PlanDetails.of(task).plan_segments
    except MalformedRecord as error:
        yield from _unread(task.task_id, str(error), task.task_payload, {}, catalogs)
        return
    table_uuid, location = table_place(task.task_payload) or ("", "")
    what = f"{printable(task.task_type)} (task {task.task_id})"
    for segment in segments:
        yield Claim(what, table_uuid, location, segment)
    if location and not segments:
        yield Claim(what, table_uuid, location, None)
