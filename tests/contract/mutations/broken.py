"""Stores that each break one promise, with the checks that must notice."""

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from delegation.idempotency.reservations import MemoryReservationStore, Reservation, ReservationConflict
from delegation.testing import reservations as checks
from delegation.testing.reservations import Check


class ForgetsWhatWasObserved(MemoryReservationStore):
    def reserve(self, record: Reservation, now: datetime) -> None:
        super().reserve(record.model_copy(update={"before": None}), now)


class ForgetsHeaders(MemoryReservationStore):
    def replace(self, record: Reservation, before: Reservation) -> None:
        super().replace(record.model_copy(update={"headers": {}}), before)


class NeedsABody(MemoryReservationStore):
    def replace(self, record: Reservation, before: Reservation) -> None:
        super().replace(record.model_copy(update={"http_status": record.http_status and 200}), before)


class OverwritesATakenKey(MemoryReservationStore):
    def reserve(self, record: Reservation, now: datetime) -> None:
        self._records[record.scope] = record


class HidesTheStoredRecord(MemoryReservationStore):
    def reserve(self, record: Reservation, now: datetime) -> None:
        try:
            super().reserve(record, now)
        except ReservationConflict:
            raise ReservationConflict(None) from None


class OneRecordForAll(MemoryReservationStore):
    def _scoped(self, record: Reservation) -> Reservation:
        return record.model_copy(update={"scope": checks.SCOPE.id})

    def reserve(self, record: Reservation, now: datetime) -> None:
        super().reserve(self._scoped(record), now)


class RefusesItsOwnWrite(MemoryReservationStore):
    def reserve(self, record: Reservation, now: datetime) -> None:
        if self._records.get(record.scope) == record:
            raise ReservationConflict(record)
        super().reserve(record, now)


class FreesAKeyAtTheEndOfTheLease(MemoryReservationStore):
    def reserve(self, record: Reservation, now: datetime) -> None:
        stored = self._records.get(record.scope)
        if stored is not None and stored.lost_not_before <= now:
            self.remove(record.scope)
        super().reserve(record, now)


class NeverFreesAKey(MemoryReservationStore):
    def reserve(self, record: Reservation, now: datetime) -> None:
        super().reserve(record, now - timedelta(days=1))


class ReplacesAnything(MemoryReservationStore):
    def replace(self, record: Reservation, before: Reservation) -> None:
        if record.scope in self._records:
            self._records[record.scope] = record
            return
        super().replace(record, before)


class ReplacesWhatIsGone(MemoryReservationStore):
    def replace(self, record: Reservation, before: Reservation) -> None:
        self._records.setdefault(record.scope, before)
        super().replace(record, before)


class ReadsAnyFormat(MemoryReservationStore):
    def _readable(self, scope: str) -> Reservation | None:
        return self._records.get(scope)


class ChecksBeforeItWrites(MemoryReservationStore):
    """All threads check, then all write."""

    def __init__(self) -> None:
        super().__init__()
        self._all = threading.Barrier(8)

    def reserve(self, record: Reservation, now: datetime) -> None:
        is_free = record.scope not in self._records
        self._all.wait()
        if is_free:
            self._records[record.scope] = record
        else:
            super().reserve(record, now)


class ComparesBeforeItReplaces(MemoryReservationStore):
    """All threads compare, then all write."""

    def __init__(self) -> None:
        super().__init__()
        self._all = threading.Barrier(8)

    def replace(self, record: Reservation, before: Reservation) -> None:
        self._all.wait()
        self._records[record.scope] = record


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken store and the checks that notice."""

    build: type[MemoryReservationStore]
    breaks: tuple[Check, ...]


BROKEN: Final = (
    Broken(ForgetsWhatWasObserved, (checks.a_reservation_comes_back_whole,)),
    Broken(ForgetsHeaders, (checks.a_final_answer_comes_back_whole,)),
    Broken(NeedsABody, (checks.an_empty_answer_comes_back,)),
    Broken(OverwritesATakenKey, (checks.a_taken_key_is_refused_with_its_record, checks.an_expired_key_is_free)),
    Broken(HidesTheStoredRecord, (checks.a_taken_key_is_refused_with_its_record,)),
    Broken(OneRecordForAll, (checks.keys_of_other_scopes_do_not_meet,)),
    Broken(RefusesItsOwnWrite, (checks.the_same_write_again_is_its_own,)),
    Broken(FreesAKeyAtTheEndOfTheLease, (checks.an_expired_key_is_free,)),
    Broken(NeverFreesAKey, (checks.an_expired_key_is_free,)),
    Broken(ReplacesAnything, (checks.replacing_is_conditional_on_what_was_read,)),
    Broken(ReplacesWhatIsGone, (checks.what_is_gone_is_not_replaced,)),
    Broken(ReadsAnyFormat, (checks.a_record_of_a_newer_release_is_never_overwritten,)),
    Broken(ChecksBeforeItWrites, (checks.one_of_many_reserves_a_key,)),
    Broken(ComparesBeforeItReplaces, (checks.one_of_many_takes_a_key_over,)),
)
