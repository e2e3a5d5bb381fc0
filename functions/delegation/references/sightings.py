"""Records where a pass saw each table, so that a table renamed during the pass is not missed.

A table renamed from a name before its visit to a name after its visit is loaded under neither. It leaves a trace: its
former name has no table, or not the table that the index knows. Then the names loaded by that time are loaded again,
even if its uuid was seen elsewhere, because a registered clone has the same uuid. A dropped table leaves the same
trace, so a pass loads each name at most twice.

A table unknown to the index leaves no trace if another table is created under its name before that name is loaded. So
each load of a name without an entry counts as a trace. During the second visits every name has an entry, so a rename
from a name still to be loaded to one already loaded leaves a trace again. If that happens in a pass that also `strayed`
(a name without an entry had no table of its own), the table may have been missed twice. Such a pass does not count, and
the next one knows the names.

Clones that exchange names leave no trace, because they have one uuid. So names that share a uuid are loaded again after
the first visits. If one of them has lost its table, its clone may have replaced a table that was renamed to a name
behind the pass: that is a trace. A known table renamed behind both visits leaves no trace, but the table that now has
its name may be seen elsewhere. Its name is `stale`, and is loaded again after the second visits as long as a known
table was not seen.

Names loaded before all others, and names that share a uuid, are loaded again at the end of the first visits. A process
that stops before that leaves more to its successor (`left_to`), which does not know these names.
"""

from delegation.identifiers import TableIdentifier
from delegation.references.names import PassNames, Position, position_of


class Sightings:
    """What one process saw in one pass, over tables with the index's entries in `names`. In a pass started by another
    process, every entry's table may have been seen."""

    def __init__(self, names: PassNames, *, continued: bool = False, again: bool = False) -> None:
        """With `again`, the former owner of the pass had already started the second loads."""
        self._names = names
        self._continued = continued
        self._again_to: Position | None = None
        self._unsettled = False
        self._again = again
        self._early = 0
        self._early_to: Position = ()
        self._disputed_to: Position = ()
        self.moved_again = False
        """Whether a name had another table, or none, at its second load."""
        self.strayed = False
        """Whether a name from the first listing without an entry had another name's table, or none."""

    def is_new(self, identifier: TableIdentifier) -> bool:
        """Return whether a name is loaded for the first time and had no table in the index."""
        return not self._again and self._names.seen_at(identifier)[0] is None

    def new(self, identifier: TableIdentifier, uuid: str | None, loaded_to: Position, *, early: bool) -> None:
        """Record the first load of a listed name without an entry. `uuid` is None without a table. Names loaded `early`
        are loaded again after all others; for another name, those up to `loaded_to` are."""
        elsewhere = uuid is None or self._names.was_known(uuid) or self._names.is_elsewhere(identifier, uuid)
        self.strayed |= elsewhere
        if early:
            self._names.load_early(identifier)
            self._early += 1
            self._early_to = max(self._early_to, position_of(identifier))
        else:
            self._trace(loaded_to)

    def begin_again(self) -> None:
        self._again = True

    def saw(self, identifier: TableIdentifier, uuid: str, loaded_to: Position) -> None:
        """Record a table under a name. Names up to `loaded_to` may have been loaded by then."""
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
            # A clone, or a table that exchanged names with a table unknown to the index.
            self._disputed_to = max(self._disputed_to, *map(position_of, self._names.dispute(identifier, uuid)))

    def hidden(self, loaded_to: Position) -> None:
        """Record a name whose table is no longer readable and may be another table."""
        self._changed(True)
        self._trace(loaded_to)

    def lost(self, identifier: TableIdentifier, loaded_to: Position, *, same: bool) -> None:
        """Record a name whose table has no metadata file. `same` states whether it is the same table as before."""
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
        """Return whether the table of an empty name may have another name, because it was seen there in this pass. If
        names changed during second loads, a table that was not seen may have another name too."""
        return self._unsettled or bool(self.displaced_at(identifier))

    def displaced_at(self, identifier: TableIdentifier) -> frozenset[str]:
        """Return the uuid seen earlier under a name. If that table has left the name, it may have any other."""
        known, before, _ = self._names.seen_at(identifier)
        uuid = known if before is None and self._continued else before
        return frozenset({uuid}) if uuid else frozenset()

    @property
    def again_to(self) -> Position | None:
        """The position up to which names are loaded again, None if no table left a trace."""
        return self._again_to

    @property
    def left_to(self) -> Position | None:
        """The position up to which another process would load names again if this one stopped now, None if none."""
        early = self._early_to if self._early > 1 or self._continued else ()
        return max(self._again_to or (), early, self._disputed_to) or None

    def _changed(self, changed: bool) -> None:
        self.moved_again |= self._again and changed

    def _left(self, identifier: TableIdentifier, before: str | None, loaded_to: Position) -> None:
        """Record that a name lost its table. If a clone lost it, that table may be anywhere."""
        if before is not None and not self._again and self._names.is_elsewhere(identifier, before):
            self._trace(loaded_to)

    def _trace(self, loaded_to: Position) -> None:
        self._again_to = max(self._again_to or (), loaded_to)
