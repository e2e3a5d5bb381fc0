"""The sequence of a drop with purge, from the caller's DELETE to its answer: load as the caller → guards → prove the
privilege → list the namespace of tombstones as the service → put the record → rename as the caller → load the
destination as the service → record the table that was moved → submit its purge → 204, or wait for the purge. After a
crash between two steps the record shows where to continue."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.gateway.drop import tombstones as records
from delegation.gateway.drop.caller import (
    CallerCatalog,
    DropKey,
    Forward,
    check_purgeable,
    check_words,
    prove_privilege,
    refusal_of,
    table_of,
    wanted_uuid,
)
from delegation.gateway.drop.errors import (
    DropUnsupported,
    NameTaken,
    RenamedBack,
    RestoreRefused,
    as_drop_errors,
    catalog_unsupported,
    drop_interrupted,
    drop_not_confirmed,
    foreign_realm,
    kept_as_tombstone,
    not_readable,
    service_may_not_list,
    service_not_permitted,
    table_replaced,
    tombstone_grant_missing,
    tombstone_namespace_missing,
)
from delegation.gateway.drop.settings import (
    MODE_HEADER,
    PURGE_AFTER_HEADER,
    STATE_HEADER,
    TOMBSTONE_HEADER,
)
from delegation.gateway.drop.steps import DropSteps
from delegation.gateway.drop.tombstones import Tombstone, TombstoneState, caller_key
from delegation.gateway.forwarding import REALM_HEADER, GatewayCaller
from delegation.gateway.keys.reading import is_error, is_genuine, unkeyed
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, MutationNotVerified
from delegation.gateway.routing import Operation
from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import (
    CATALOG_UNSUPPORTED,
    NOT_APPLIED,
    CredentialVendingFailed,
    NoSuchNamespace,
    NoSuchTable,
    PolarisError,
    PolarisForbidden,
    PolarisUnauthorized,
    TableMetadataMissing,
    is_transient,
)
from delegation.polaris.model import LoadedTable
from delegation.storage.base import ObjectStore
from delegation.tasks.life.model import Status
from delegation.timestamps import isoformat
from polaris_common.errors import printable

_FEW: Final = 5
"""How many former drops of a name are considered for a repeated DELETE if one of them is decided."""
_MANY: Final = 100
_LOADED: Final = 5
"""How many destinations are loaded to find the one with the table."""
_POLLS: Final = 20
_POLL_SECONDS: Final = 0.25
RESTORED_SINCE: Final = "somebody restored it after this request"
_GONE: Final = frozenset({TombstoneState.PENDING, TombstoneState.CLEARED})
_PURGED: Final = frozenset({TombstoneState.PURGED, TombstoneState.DROPPED})


@dataclass(frozen=True, slots=True)
class TableDrops:
    """Drops tables with their files, in place of an unmodified catalog. `files` opens storage with the credentials that
    the table was loaded with. `begin` is called before the first record is put, to start the recurring task that
    settles records. A request is held open for at most `budget`. `realm` is this deployment's."""

    forward: Forward
    files: Callable[[LoadedTable], ObjectStore]
    steps: DropSteps
    realm: str
    budget: timedelta
    begin: Callable[[], None]

    def drop(
        self,
        request: CatalogRequest,
        caller: GatewayCaller,
        identifier: TableIdentifier,
        key: DropKey | None = None,
    ) -> CatalogAnswer:
        """Answer `DELETE` of a table with `purgeRequested` (Iceberg REST Catalog API, dropTable). A repeat with the
        same key is for the table that the first request was checked for. Raises errors of this package, with the
        answer's status and kind. With a key, raises MutationNotVerified if the answer to a drop left to the catalog is
        not the catalog's own."""
        with _as_drop_errors(identifier):
            drop = _Drop(self, request, caller, identifier, key)
            try:
                return drop.answer()
            except DropUnsupported:
                if self.steps.settings.unsupported != "pass" or not drop.is_of_its_table():
                    raise
        answer = self.forward(request if key is None else unkeyed(request))
        if key is None or is_genuine(Operation.DROP_TABLE, answer):
            return answer
        raise _left_to_the_catalog(identifier, f"the answer {answer.status} did not come from an Iceberg catalog")

    def earlier(
        self, request: CatalogRequest, caller: GatewayCaller, identifier: TableIdentifier, key: DropKey
    ) -> CatalogAnswer | None:
        """Return the answer to a drop begun with the same key, None if it renamed no table. Raises what `drop` does,
        and MutationNotVerified if the catalog itself may have performed it."""
        with _as_drop_errors(identifier):
            return _Drop(self, request, caller, identifier, key).earlier_of_key(key)


class _Drop:
    """One request. Raises DropError (INVALID_REQUEST) for a word that it would ignore."""

    def __init__(
        self,
        drops: TableDrops,
        request: CatalogRequest,
        caller: GatewayCaller,
        identifier: TableIdentifier,
        key: DropKey | None,
    ) -> None:
        check_words(request)
        self._drops = drops
        self._steps = drops.steps
        self._settings = drops.steps.settings
        self._identifier = identifier
        self._catalog = CallerCatalog(drops.forward, request)
        self._realms = [value for name, value in request.headers if name.lower() == REALM_HEADER.lower()]
        self._caller = caller_key(caller.principal, caller.authorization)
        self._is_trusted = bool(caller.roles & self._settings.trusted_roles)
        self._wanted_uuid = wanted_uuid(request)
        self._key = key
        self._waits = self._settings.mode_of(request.header(MODE_HEADER)) == "wait"
        self._until = (self._clock() if key is None else key.arrived) + drops.budget

    def answer(self) -> CatalogAnswer:
        """Load, check and rename the table. If the name does not load, answer from the record of its drop."""
        self._check_realm()
        if self._key is not None and self._key.is_repeat:
            self._wanted_uuid = self._chosen_before(self._key) or self._wanted_uuid
        answer = self._catalog.load(vend=not self._is_trusted)
        if not answer.is_success:
            return self._not_loaded(answer)
        table = table_of(self._identifier, answer)
        if self._wanted_uuid not in {None, table.table_uuid}:
            return self._replaced(table)
        self._check_catalog()
        check_purgeable(table, self._steps.options)
        if not self._is_trusted:
            prove_privilege(table, self._drops.files(table))
        self._check_service()
        self._drops.begin()
        record = self._put(table)
        self._hold()
        renamed = self._catalog.rename(self._identifier, record.destination)
        moved = self._moved(record)
        if moved is None:
            return self._not_renamed(record, renamed)
        return self._confirmed(record, moved)

    def is_of_its_table(self) -> bool:
        """Return whether the name has the table that the request is for. The catalog itself compares no uuid."""
        if self._wanted_uuid is None:
            return True
        answer = self._catalog.load(vend=False)
        return answer.is_success and table_of(self._identifier, answer).table_uuid == self._wanted_uuid

    def _check_realm(self) -> None:
        """Raise DropUnsupported for another realm, where the service could not find the table."""
        for asked in self._realms:
            if asked != self._drops.realm:
                raise foreign_realm(self._identifier, asked, self._drops.realm)

    def _check_catalog(self) -> None:
        """Refuse a catalog whose files the service cannot delete, before the rename touches its table."""
        try:
            self._steps.tombstones.catalog.check_catalog(self._identifier.catalog)
        except PolarisError as error:
            raise catalog_unsupported(self._identifier, error) from error

    def _check_service(self) -> None:
        try:
            self._steps.check_tombstones(self._identifier.catalog)
        except NoSuchNamespace:
            raise self._namespace_missing() from None
        except PolarisError as error:
            if error.retryable:
                raise
            raise service_may_not_list(self._identifier, self._tombstone_namespace, error) from error

    def _moved(self, record: Tombstone) -> LoadedTable | None:
        """Load the table at its destination as the service. If that fails, rename it back, if need be as the caller."""
        try:
            return self._steps.at_destination(record)
        except PolarisError as unread:
            if unread.retryable:
                raise
            error, reason = unread, not_readable(unread)
        tombstones = self._steps.tombstones
        try:
            tombstones.rename_unread(record, self._identifier, error, reason)
        except (RestoreRefused, NameTaken):
            answer = self._catalog.rename(record.destination, self._identifier)
            if answer is None or not answer.is_success:
                raise service_not_permitted(_drop_of(self._identifier), error, record.tombstone_id) from error
            tombstones.changed(
                record, lambda now, tombstone: records.restored_unread(tombstone, self._identifier, now, reason)
            )
        raise RenamedBack(str(self._identifier), reason) from error

    def _hold(self) -> None:
        """Extend the reservation of the request's key, if any: the next steps may take longer than it lasts."""
        if self._key is not None:
            self._key.hold()

    def _chosen_before(self, key: DropKey) -> str | None:
        """Return the uuid of the table that the key's first request was to drop, None if none was checked."""
        records_of_key = [tombstone for tombstone in self._newest() if key.is_of(tombstone, self._caller)]
        return records_of_key[-1].expected_uuid if records_of_key else None

    def _put(self, table: LoadedTable) -> Tombstone:
        record = records.pending(
            self._drops.realm,
            self._identifier,
            self._settings.tombstone_namespace,
            self._clock(),
            expected_uuid=table.table_uuid,
            caller=self._caller,
            waits=self._waits,
            scope=None if self._key is None else self._key.scope,
        )
        self._steps.store.put(record)
        return record

    def _confirmed(self, record: Tombstone, moved: LoadedTable) -> CatalogAnswer:
        confirmed = self._steps.confirmed(record, moved)
        if confirmed.state is TombstoneState.RESTORED:
            raise RenamedBack(str(self._identifier), confirmed.problem or RESTORED_SINCE)
        if confirmed.state is TombstoneState.RESTORING:
            raise self._steps.renamed_back(confirmed, confirmed.problem or RESTORED_SINCE)
        return self._concluded(confirmed, moved)

    def _concluded(self, record: Tombstone, moved: LoadedTable | None = None) -> CatalogAnswer:
        """Submit the purge; answer at once or after it. No request waits for a grace period."""
        if record.state in _PURGED:
            return dropped(record)
        task = self._steps.submitted(record, moved)
        in_grace = record.grace_until is not None and record.grace_until > self._clock()
        if not self._waits or (in_grace and task.status is Status.SUBMITTED):
            return dropped(record)
        outcome = self._steps.outcome(record, task, self._until, self._hold)
        if outcome.status is Status.SUCCESS:
            return dropped(record, TombstoneState.DROPPED)
        reason = f"{outcome.error_code}: {outcome.result_summary or ''}"
        if outcome.effects_began_ts is None:
            raise self._steps.renamed_back(record, reason)
        raise kept_as_tombstone(str(self._identifier), record.tombstone_id, reason)

    def _not_renamed(self, record: Tombstone, renamed: CatalogAnswer | None) -> CatalogAnswer:
        """Answer after a rename whose table is not at the destination."""
        if renamed is None or renamed.is_success or _is_unclear(renamed):
            others = self._by_duplicates(record)
            if others is not None:
                return others
            reason = f"the catalog {'gave no answer' if renamed is None else f'answered {renamed.status}'}"
            raise drop_not_confirmed(str(self._identifier), reason)
        refused = refusal_of(renamed)
        self._steps.tombstones.changed(record, lambda now, tombstone: records.cleared(tombstone, now, str(refused)))
        if isinstance(refused, NoSuchTable):
            return self._gone(renamed)
        if renamed.status in NOT_APPLIED:
            return self._by_duplicates(record) or renamed
        if isinstance(refused, PolarisUnauthorized):
            return renamed
        raise self._unsupported(refused)

    def _by_duplicates(self, record: Tombstone) -> CatalogAnswer | None:
        """Return the answer of another request that dropped the same table, None without one. Of several concurrent
        renames the catalog may leave all but one undecided. A key has its own answer."""

        def is_duplicate(other: Tombstone) -> bool:
            is_same = other.expected_uuid == record.expected_uuid and other.tombstone_id != record.tombstone_id
            return is_same and other.is_fresh(self._clock())

        return None if self._key else self.earlier(is_duplicate)

    def _unsupported(self, refused: PolarisError) -> DropUnsupported:
        """Return why the catalog did not rename the table."""
        if isinstance(refused, NoSuchNamespace):
            return self._namespace_missing()
        if isinstance(refused, PolarisForbidden):
            return tombstone_grant_missing(self._identifier, self._tombstone_namespace, str(refused))
        if refused.code == CATALOG_UNSUPPORTED:
            return catalog_unsupported(self._identifier, refused)
        return DropUnsupported(
            f"{self._identifier} was not dropped: the catalog refused to rename it ({refused}). Drop the table in the "
            "catalog that owns it, or drop it without purge"
        )

    @property
    def _tombstone_namespace(self) -> str:
        return ".".join(self._settings.tombstone_namespace)

    def _namespace_missing(self) -> DropUnsupported:
        return tombstone_namespace_missing(self._identifier.catalog, self._tombstone_namespace)

    def _not_loaded(self, answer: CatalogAnswer) -> CatalogAnswer:
        """Answer for a table that the caller cannot load; most answers are the catalog's own."""
        refused = refusal_of(answer)
        if answer.status < 500 and not is_error(answer):
            raise drop_interrupted(_drop_of(self._identifier), refused)  # of something between here and the catalog
        if isinstance(refused, NoSuchTable | NoSuchNamespace):
            return self._gone(answer)
        if isinstance(refused, CredentialVendingFailed):
            raise DropUnsupported(
                f"{self._identifier} was not dropped: the catalog vends no storage credentials, so the caller "
                "cannot prove the right to delete the files. Set up an STS in the catalog's storage configuration, or "
                "add the caller's principal role to delegation.drop.trusted-roles"
            )
        if isinstance(refused, TableMetadataMissing):
            raise DropUnsupported(
                f"{self._identifier} was not dropped: its metadata file no longer exists, so its files are unknown "
                f"({refused}). Drop the table without purge"
            )
        return answer

    def _replaced(self, table: LoadedTable) -> CatalogAnswer:
        """Answer for a name that another table has now, from the record of its table's drop if there is one."""
        earlier = self.earlier(self._is_repeated_by)
        if earlier is not None:
            return earlier
        raise table_replaced(str(self._identifier), str(self._wanted_uuid), table.table_uuid)

    def _is_repeated_by(self, record: Tombstone) -> bool:
        """Return whether this request repeats the record's; with a uuid at any time."""
        return self._wanted_uuid is not None or record.is_fresh(self._clock())

    def _gone(self, answer: CatalogAnswer) -> CatalogAnswer:
        """Answer for a name that does not load, from the same caller's record that the request repeats."""
        earlier = self.earlier(self._is_repeated_by)
        if earlier is not None:
            return earlier
        if self._catalog.is_view(self._identifier):
            raise DropUnsupported(
                f"{self._identifier} was not dropped: it is a view, not a table. Use `DROP VIEW` (DELETE …/views/…)"
            )
        if self._catalog.is_generic_table(self._identifier):
            raise DropUnsupported(
                f"{self._identifier} was not dropped: it is a generic table, so its files are unknown. Drop it without "
                "purge"
            )
        return answer

    def earlier_of_key(self, key: DropKey) -> CatalogAnswer | None:
        """Return the answer from the key's newest record, None if no table was renamed for it. If the table was renamed
        back, the answer is the first request's and the table is not touched."""
        if self._settings.unsupported != "pass":
            self._check_realm()
        records_of_key = [tombstone for tombstone in self._newest() if key.is_of(tombstone, self._caller)]
        for record in records_of_key:
            if record.state is TombstoneState.RESTORED:
                raise RenamedBack(str(self._identifier), record.problem or RESTORED_SINCE)
        answer = self._by_records(records_of_key)
        # Nothing was forwarded before a refusal.
        is_ours = bool(records_of_key) and records_of_key[0].state is TombstoneState.PENDING
        if answer is None and self._settings.unsupported == "pass" and not is_ours:
            raise _left_to_the_catalog(
                self._identifier, "an earlier call with this key may have been forwarded to the catalog"
            )
        return answer

    def earlier(self, counts: Callable[[Tombstone], bool]) -> CatalogAnswer | None:
        """Return the answer from the caller's newest record that counts, None if no table was renamed. It waits while
        more duplicates are in progress than can be read: one of them may have renamed the table."""
        for left in range(_POLLS - 1, -1, -1):
            own_records = [tombstone for tombstone in self._newest() if self._is_ours(tombstone) and counts(tombstone)]
            answer = self._by_records(own_records)
            under_way = sum(tombstone.state is TombstoneState.PENDING for tombstone in own_records)
            if answer is not None or under_way <= _LOADED or not left:
                return answer
            self._steps.sleep(_POLL_SECONDS)
        return None

    def _is_ours(self, record: Tombstone) -> bool:
        is_wanted = self._wanted_uuid in {None, record.expected_uuid}
        return record.caller == self._caller and is_wanted and record.state is not TombstoneState.RESTORED

    def _newest(self) -> Sequence[Tombstone]:
        """Return the newest records of the name: a few, or many if duplicates wrote them."""
        of_table = self._steps.store.of_table
        newest = of_table(self._drops.realm, self._identifier, _FEW)
        unknown = [tombstone for tombstone in newest if tombstone.state in _GONE]
        return newest if len(unknown) < _FEW else of_table(self._drops.realm, self._identifier, _MANY)

    def _by_records(self, tombstones: Sequence[Tombstone]) -> CatalogAnswer | None:
        """Return the answer by the newest of these whose table was renamed, None without one."""
        loaded = 0
        for record in tombstones:
            if record.state not in _GONE:
                return self._by_record(record)
            if record.state is TombstoneState.PENDING and loaded < _LOADED:
                loaded += 1
                answer = self._by_record(record)
                if answer is not None:
                    return answer
        # A rename without an answer counted as not performed.
        cleared = [tombstone for tombstone in tombstones if tombstone.state is TombstoneState.CLEARED][:_LOADED]
        return next((answer for tombstone in cleared if (answer := self._by_record(tombstone)) is not None), None)

    def _by_record(self, record: Tombstone) -> CatalogAnswer | None:
        """Finish the drop that a record shows as started and return the answer; None if its table was not renamed."""
        if record.state is TombstoneState.RESTORING:
            raise self._steps.renamed_back(record, record.problem or "its purge was refused or cancelled")
        if record.state not in _GONE:
            return self._repeated(record)
        moved = self._moved(record)
        return None if moved is None else self._confirmed(record, moved)

    def _repeated(self, record: Tombstone) -> CatalogAnswer:
        if record.state is TombstoneState.RENAMED or record.is_of_another_table or self._waits:
            return self._concluded(record)
        return dropped(record)

    def _clock(self) -> datetime:
        return self._steps.tombstones.clock()


def dropped(record: Tombstone, state: TombstoneState | None = None) -> CatalogAnswer:
    """Return the answer to a drop whose table has lost its name: 204, its tombstone, and when its purge starts. `state`
    is the tombstone's if it changed since the read. Only a grace period has a time, in UTC."""
    state = state or record.state
    headers = [(TOMBSTONE_HEADER, record.tombstone_id), (STATE_HEADER, str(state))]
    begins = record.grace_until
    if state is TombstoneState.RENAMED and begins is not None and begins > record.updated_at:
        headers.append((PURGE_AFTER_HEADER, isoformat(begins)))
    return CatalogAnswer(204, tuple(headers))


def _is_unclear(answer: CatalogAnswer) -> bool:
    """Return whether a rename with this answer may have been performed, or may be later. Only the catalog's own refusal
    excludes that: a proxy may answer 503 after it forwarded the request."""
    return not is_error(answer) or (is_transient(answer.status) and answer.status not in NOT_APPLIED)


def _left_to_the_catalog(identifier: TableIdentifier, reason: str) -> MutationNotVerified:
    return MutationNotVerified(
        f"the catalog may have dropped {identifier}: {reason}. Nothing more was done. Check whether the table exists. "
        "If it does, drop it with a new key"
    )


def _drop_of(identifier: TableIdentifier) -> str:
    return f"the drop of {printable(str(identifier))}"


def _as_drop_errors(identifier: TableIdentifier) -> AbstractContextManager[None]:
    return as_drop_errors(_drop_of(identifier), f"{identifier} was not dropped")
