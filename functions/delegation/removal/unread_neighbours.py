"""Decides on unreadable files of neighbour tables: they hold the purge unless the operator accepts them.

A table of which a part is readable protects what that part names. A wholly unreadable table protects the storage below
its last known areas, as far as these are at or below the purged table's locations. An area around those states too
little, because areas are folded into their parents.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg import reach
from delegation.iceberg.errors import CorruptManifestError, CorruptMetadata, ManifestMismatchError, ManifestMissing
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    CredentialVendingFailed,
    NoSuchNamespace,
    NoSuchTable,
    PolarisForbidden,
    TableMetadataMissing,
)
from delegation.references.blocking import Subject
from delegation.references.reading import digest
from delegation.removal.context import RemovalContext
from delegation.removal.errors import NeighbourChanged, NeighbourUnreadable
from delegation.removal.index import SAMPLE, Finding
from delegation.removal.neighbourhood import Neighbour
from delegation.storage.base import BucketNotFound, FileTooLarge, ObjectStoreDenied
from delegation.storage.locations import Roots
from polaris_common.errors import DelegationError, printable

EXEMPT: Final = "NEIGHBOUR_EXEMPT"
"""The code of a finding: an operator exempted unreadable tables. A plan with it is executed while they are exempt."""
LOST_REFS_DAMAGED: Final = "LOST_REFS_DAMAGED"
"""The code of a finding: a former state with lost refs has missing or damaged files, so it is incomplete."""
MANIFEST_DIFFERS: Final = "MANIFEST_DIFFERS"
"""The code of a finding: manifests differ from their lists' descriptions, and all that they name stays."""
_MOST_DAMAGED: Final = 1_000
_DAMAGED: Final = (ManifestMissing, FileTooLarge, CorruptMetadata, CorruptManifestError, ManifestMismatchError)
_NO_ACCESS: Final = (PolarisForbidden, CredentialVendingFailed, ObjectStoreDenied, BucketNotFound)
"""After one of these no other file of the table can be read either."""
# Errors that a retry would repeat. A missing manifest is not one: the table may have newer commits.
_UNREADABLE: Final = (
    *_NO_ACCESS,
    FileTooLarge,
    CorruptMetadata,
    CorruptManifestError,
    ManifestMismatchError,
    GuardRefused,
)


class UnreadNeighbours:
    """Unreadable files of neighbour tables: they refuse the purge, or are accepted and a finding.

    They are accepted with `neighbour=report`, and for a table that an operator exempted. `former` are unreadable former
    metadata files: no reader of the table reads them, so they are only a finding. `located` are the locations of tables
    of other formats, which are no finding; what is kept for them is one. `unlisted` replaces `of` for tables that no
    catalog lists.
    """

    def __init__(self, ctx: RemovalContext) -> None:
        self._ctx = ctx
        self._found: dict[str, dict[str, None]] = {}
        self._current: dict[str, bool] = {}
        self._areas: dict[str, NeighbourUnreadable] = {}
        self.former: tuple[str, ...] = ()
        self.located: tuple[str, ...] = ()
        self.unlisted: Callable[[Neighbour], reach.Unreadable] | None = None

    def accepts(self, *, exempt: bool = False) -> bool:
        """Whether the operator accepts unreadable files of a table."""
        return exempt or self._ctx.options.neighbour == "report"

    def note(self, error: NeighbourUnreadable) -> None:
        """Record the error for the findings, or raise it."""
        if not self.accepts(exempt=error.exempt):
            raise error
        self._areas.update(dict.fromkeys(error.areas, error))
        if error.is_other_format:
            self.located = (*self.located, *error.areas)
            return
        code = EXEMPT if error.exempt else NeighbourUnreadable.code
        self._found.setdefault(code, {})[f"{error.who}: {error.why}"] = None

    def last_known(self, roots: Roots, root_file: str = "") -> Roots:
        """Return the last known areas, at or below `roots`, of wholly unreadable tables. Raises NeighbourUnreadable if
        `root_file`, the purged table's metadata, is there: then all its files may be the other table's too."""
        areas = [area for area in self._areas if area.startswith(roots.uris)]
        for area in areas:
            if root_file.startswith(area):
                raise self._areas[area]
        return Roots(areas)

    def note_differing(self, who: str, path: str) -> None:
        """Record a manifest that differs from its list's description. All files that it names stay."""
        self._found.setdefault(MANIFEST_DIFFERS, {})[f"{who}: {printable(path)}"] = None

    def of_itself(self) -> reach.Unreadable:
        """Return a function for errors in what the table itself needs. It raises all but those that it can record."""

        def unreadable(path: str, error: DelegationError) -> None:
            reach.refuse_cut_off(path, error)
            self.note_differing("the table", path)

        return unreadable

    def note_missing(self, path: str) -> None:
        """Record a missing file that only expiring snapshots had. The files that it named are unknown, and stay."""
        self._found.setdefault(ManifestMissing.code, {})[printable(path)] = None

    def note_former(self, path: str) -> None:
        """Record a neighbour's unreadable former metadata file."""
        if path not in self.former:
            self.former = (*self.former, path)

    def of(self, neighbour: Neighbour) -> reach.Unreadable:
        """Return a function for errors in a neighbour's files. It raises errors that a retry may resolve."""
        if neighbour.unlisted and self.unlisted is not None:
            return self.unlisted(neighbour)
        who = str(neighbour.table.identifier)

        def unreadable(path: str, error: DelegationError) -> None:
            if reach.is_whole_otherwise(error):
                self.note_differing(who, path)
                return
            if neighbour.former and isinstance(error, _DAMAGED):
                # Another program deleted it, because no table names it. The rest stays, and nothing waits for it.
                damaged = self._found.setdefault(LOST_REFS_DAMAGED, {})
                if len(damaged) < _MOST_DAMAGED:
                    damaged[f"{who}: {printable(path)}"] = None
                return
            # A file that was accepted by name may be missing in any state of a table that others commit to.
            by_name = neighbour.exempt and neighbour.unread is not None and digest(path) in neighbour.unread
            if isinstance(error, ManifestMissing) and not by_name and not self._is_current(neighbour):
                raise NeighbourChanged(who, path, Subject.of(neighbour.table.identifier)) from error
            if not isinstance(error, (ManifestMissing, *_UNREADABLE)):
                raise error
            is_exempt = by_name or (neighbour.exempt and neighbour.unread is None)
            self.note(_error(neighbour, error, exempt=is_exempt))

        return unreadable

    def findings(self) -> list[Finding]:
        """Return one finding for reported and one for exempt tables, with their names and the reasons."""
        return [
            Finding(code=code, count=len(tables), sample=tuple(tables)[:SAMPLE]) for code, tables in self._found.items()
        ]

    def _is_current(self, neighbour: Neighbour) -> bool:
        """Return whether the table still has the metadata that names a missing file, so that the file is lost."""
        name, location = str(neighbour.table.identifier), neighbour.table.metadata_location
        if name not in self._current:
            again = self._ctx.neighbours(usable_roots([neighbour.table.location, *neighbour.areas]))
            now = (neighbour.table for neighbour in again if isinstance(neighbour, Neighbour))
            self._current[name] = any(
                (str(table.identifier), table.metadata_location) == (name, location) for table in now
            )
        return self._current[name]


def usable_roots(locations: Iterable[str]) -> Roots:
    """Return the locations without those that can contain no file of this kind of storage."""
    usable: list[str] = []
    for location in locations:
        with suppress(GuardRefused):
            usable += Roots([location]).uris
    return Roots(usable)


def reading(neighbour: Neighbour) -> AbstractContextManager[None]:
    """Raise NeighbourUnreadable or NeighbourChanged for errors in reading a neighbour's files. Their credentials are
    vended at the first read, by when the table may have been purged or dropped: then the next attempt does not find
    it."""
    unreadable = partial(_error, neighbour, exempt=neighbour.exempt and neighbour.unread is None)
    return reading_of(neighbour.table.identifier, unreadable)


@contextmanager
def reading_of(
    identifier: TableIdentifier, unreadable: Callable[[DelegationError], NeighbourUnreadable] | None = None
) -> Iterator[None]:
    """As `reading`. An executor has only the neighbour's identifier."""
    subject = Subject.of(identifier)
    with changed(str(identifier), subject):
        try:
            yield
        except NeighbourUnreadable:
            raise
        except _UNREADABLE as error:
            if unreadable is not None:
                raise unreadable(error) from error
            raise NeighbourUnreadable(str(identifier), error, subject=subject, is_found=True) from error


@contextmanager
def changed(who: str, subject: Subject) -> Iterator[None]:
    """Raise NeighbourChanged for a file or a table that no longer exists."""
    try:
        yield
    except ManifestMissing as error:
        raise NeighbourChanged(who, error.path, subject) from error
    except TableMetadataMissing as error:
        raise NeighbourChanged(who, "its metadata file") from error
    except (NoSuchTable, NoSuchNamespace) as error:
        raise NeighbourChanged(who, "its entry in the catalog") from error


def _error(neighbour: Neighbour, error: DelegationError, *, exempt: bool) -> NeighbourUnreadable:
    areas = neighbour.areas if isinstance(error, (*_NO_ACCESS, CorruptMetadata)) else ()
    identifier = neighbour.table.identifier
    subject = Subject.of(identifier)
    return NeighbourUnreadable(
        str(identifier), error, areas=areas, exempt=exempt, subject=subject, is_found=not neighbour.former
    )
