"""Where a pass saw each table, so that one which was renamed meanwhile is not missed.

A table renamed from a name before its visit to one after its visit is loaded under neither. It leaves a trace: its
former name has no table, or another one than the index knows. Then the names loaded by that time are loaded again, even
if its uuid was seen elsewhere, because a registered clone has the same one. A dropped table leaves the same trace, so a
pass loads each name at most twice.

A table unknown to the index leaves no trace if another is created under its name before that is loaded. So each load of
a name without an entry counts as a trace. During the second visits every name has an entry, so a rename from a name
still to be loaded to one already loaded leaves a trace again. If that happens in a pass in which a name without an
entry had no table of its own (`strayed`), the table may have been missed twice: that pass does not count, and the next
one knows the names.

Clones that change names leave no trace, because they have one uuid. So names that share one are loaded again after the
first visits. If one of them no longer has its table, its clone may have taken the place of a table that was renamed to
a name behind the pass: that is a trace. A known table renamed behind both visits leaves no trace, but the table whose
name it has may be met elsewhere: its name is `stale`, and is loaded again after the second visits while a known table
was met under no name.

Some names are loaded again at the end of the first visits, because they were loaded before all others or share a uuid.
A process that stops before that leaves more behind (`left_to`), because the next one does not know which they were.
"""

from delegation.identifiers import TableIdentifier
from delegation.references.names import PassNames, Position, position_of


class Sightings:
    """What one process saw in one pass over tables with the index's entries in `names`. In a pass that another process
    began every entry may have been seen."""

    def __init__(self, names: PassNames, *, continued: bool = False, again: bool = False) -> None:
        """With `again`, the former owner of the pass had already begun the second loads."""
        self._names = names
        self._continued = continued
        self._again_to: Position | None = None
        self._unsettled = False
        self._again = again
        self._early = 0
        self._early_to: Position = ()
        self._disputed_to: Position = ()
        self.moved_again = False
        """Whether a name had another table than before when it was loaded once more, or none."""
        self.strayed = False
        """Whether a name that was listed first and has no entry had another name's table, or none."""

    def is_new(self, identifier: TableIdentifier) -> bool:
        """Return whether a name is loaded for the first time and had no table in the index."""
        return not self._again and self._names.seen_at(identifier)[0] is None

    def new(self, identifier: TableIdentifier, uuid: str | None, loaded_to: Position, *, early: bool) -> None:
        """Record the first load of a listed name without an entry; `uuid` is None without a table. Names loaded `early`
        are loaded again after all others, and others up to `loaded_to`."""
        elsewhere = uuid is None or self._names.was_known(uuid) or self._names.is_elsewhere(identifier, uuid)
        self.strayed |= elsewhere
        if early:
            self._names.load_early(identifier)
            self._early += 1
            self._early_to = max(self._early_to, position_of(identifier))
        else:
            self._trace(loaded_to)

    def begin_again(self) -> None:
        """Record that names are now loaded again."""
        self._again = True

    def saw(self, identifier: TableIdentifier, uuid: str, loaded_to: Position) -> None:
        """Record a table under a name, when names up to `loaded_to` may have been loaded."""
        known, before, _ = self._names.seen_at(identifier)
        last = known if before is None else before
        elsewhere = self._names.is_elsewhere(identifier, uuid)
        self._changed(last != uuid if last is not None else elsewhere)
        if last != uuid and elsewhere:
            self._names.arrived(identifier, uuid)
        self._unsettled |= before is not None and before != uuid
        if before != uuid:
            self._left(identifier, before, loaded_to)
        self._names.see(identifier, uuid)
        if known and known != uuid:
            self._trace(loaded_to)
        elif elsewhere:
            # A clone, or a table that changed places with one that the index does not know.
            self._disputed_to = max(self._disputed_to, *map(position_of, self._names.dispute(identifier, uuid)))

    def hidden(self, loaded_to: Position) -> None:
        """Record a name whose table is no longer readable: it may be another table."""
        self._changed(True)
        self._trace(loaded_to)

    def lost(self, identifier: TableIdentifier, loaded_to: Position, *, same: bool) -> None:
        """Record a name whose table has no metadata file, and whether it is the `same` table as before."""
        known, before, gone = self._names.seen_at(identifier)
        self._changed(not same and not gone)
        if not same:
            self._left(identifier, before, loaded_to)
        self._names.lose(identifier)
        if known is not None and not same and before is None:
            self._trace(loaded_to)

    def vanished(self, identifier: TableIdentifier, loaded_to: Position) -> None:
        """Record a listed name that had no table when it was loaded, or has none now."""
        _, before, gone = self._names.seen_at(identifier)
        self._changed(not gone)
        self._left(identifier, before, loaded_to)
        self._names.lose(identifier)
        if before is not None:
            self._unsettled = True
        else:
            self._trace(loaded_to)

    def may_have_moved(self, identifier: TableIdentifier) -> bool:
        """Return whether the table of an empty name may have another name: it was seen there in this pass. If names
        changed at second loads, a table that was not seen at all may have another name too."""
        return self._unsettled or bool(self.displaced_at(identifier))

    def displaced_at(self, identifier: TableIdentifier) -> frozenset[str]:
        """Return the uuid seen under a name before: if it is not there now it may have any other name."""
        known, before, _ = self._names.seen_at(identifier)
        uuid = known if before is None and self._continued else before
        return frozenset({uuid}) if uuid else frozenset()

    @property
    def again_to(self) -> Position | None:
        """Up to where names are loaded again, None if no table left a trace."""
        return self._again_to

    @property
    def left_to(self) -> Position | None:
        """Up to where another process would load names again if this one stopped now, None for nothing."""
        early = self._early_to if self._early > 1 or self._continued else ()
        return max(self._again_to or (), early, self._disputed_to) or None

    def _changed(self, changed: bool) -> None:
        self.moved_again |= self._again and changed

    def _left(self, identifier: TableIdentifier, before: str | None, loaded_to: Position) -> None:
        """Record that a name lost its table; if a clone has lost it, that table may be anywhere."""
        if before is not None and not self._again and self._names.is_elsewhere(identifier, before):
            self._trace(loaded_to)

    def _trace(self, loaded_to: Position) -> None:
        self._again_to = max(self._again_to or (), loaded_to)
