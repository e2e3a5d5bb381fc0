"""Every fault at every call of a drop with purge, with and without a key, with the name given to another table.

A case is one fault at one call of one drop; the same caller then repeats its request until it has a final answer, and
hours pass. It is checked by what a person sees: which tables load, which files are there, what was answered. Where the
catalog is, in this process or a server, is decided by the world in which a case runs.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

import httpx

from delegation.gateway.drop.errors import TombstoneOutcomeUnknown, TombstonesUnavailable
from delegation.gateway.drop.keyed import KeyedDrops
from delegation.gateway.keys.service import Patience, policy_for
from delegation.gateway.messages import answer_of
from delegation.idempotency.mutations import Mutations
from delegation.idempotency.reservations import MemoryReservationStore, RecordOutcomeUnknown, RecordsUnavailable
from delegation.storage.memory import Faults, Killed
from delegation.tasks.errors import OutcomeUnknown, StoreUnavailable
from infra.local.catalog.privileges import Privilege
from polaris_common.errors import DelegationError
from tests.kit.tasks.builders import nonce
from tests.unit.gateway.drop.deployment import Answered, Counted, Deployment
from tests.unit.gateway.drop.world import DropWorld

_REPEATS: Final = 4
_BETWEEN: Final = timedelta(seconds=70)
"""Longer than a killed call holds its key."""


class Fault(StrEnum):
    """What happens at one call; a process that is not killed continues with its error."""

    KILLED_BEFORE = "killed before"
    KILLED_AFTER = "killed after"
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    REFUSED = "503"
    FAILED = "500 although performed"


class Keyed(StrEnum):
    """What names the drop beside the table's name."""

    NO = "unkeyed"
    KEY = "key"
    UUID = "uuid"


class Recreated(StrEnum):
    """Whether another user gives the name to another table, and when."""

    NO = "untouched"
    SWAPPED = "replaced before the rename"
    AGAIN = "recreated before the repeat"


class Permitted(StrEnum):
    """What the service may do in the namespace of tombstones."""

    ALL = "the service may do its part"
    NOTHING = "the service has no grant"
    TO_LIST = "the service may list, not load or rename"


@dataclass(frozen=True, slots=True)
class Case:
    """One cell of the matrix."""

    fault: Fault
    call: int
    keyed: Keyed
    recreated: Recreated
    is_repeated: bool = True
    """Whether the caller repeats its request, or leaves all to the recurring task."""
    permitted: Permitted = Permitted.ALL


class OneFault(Faults):
    """Counts calls, and has one fault at call `at`; a killed process makes no further call."""

    def __init__(self, fault: Fault | None = None, at: int = 0) -> None:
        killed = fault in {Fault.KILLED_BEFORE, Fault.KILLED_AFTER}
        super().__init__(kill_at=at if killed else None, after=fault is Fault.KILLED_AFTER)
        self.fault = fault
        self.at = at

    @property
    def is_now(self) -> bool:
        """Whether the call that is being made is the one with the fault."""
        return self.calls == self.at

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        with super().call(name):
            error = self._errors(name) if self.is_now else None
            if error is not None and self.fault in {Fault.REQUEST_LOST, Fault.REFUSED}:
                raise error[0]
            yield
            if error is not None and self.fault in {Fault.ANSWER_LOST, Fault.FAILED}:
                raise error[1]

    def _errors(self, name: str) -> tuple[Exception, Exception] | None:
        """Return what a store raises if it did nothing, and if it is not known what it did; reads are never unclear."""
        kind, _, method = name.partition(" ")
        reads = method.startswith(("get", "find", "of_table", "newest", "due", "heads"))
        match kind:
            case "tombstone":
                errors = TombstonesUnavailable("away"), TombstoneOutcomeUnknown("no answer")
            case "task":
                errors = StoreUnavailable("away"), OutcomeUnknown("no answer")
            case "key":
                errors = RecordsUnavailable("away"), RecordOutcomeUnknown("no answer")
            case _:
                return None
        return (errors[0], errors[0]) if reads else errors


@dataclass
class Matrix:
    """One case: `events` is what was done and answered, for a person who looks at a violation."""

    case: Case
    here: Deployment
    keys: MemoryReservationStore = field(default_factory=MemoryReservationStore)
    answers: list[Answered] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    own: str = ""
    other: str | None = None
    asked_for_other: bool = False
    files: dict[str, set[str]] = field(default_factory=dict)

    def run(self) -> list[str]:
        """Play the case; return what is wrong, nothing if all is right."""
        here = self.here
        self._begin()
        self.files[self.own] = here.data()
        self._restart(OneFault(self.case.fault, self.case.call))
        here.requests.lose = self._fate
        with contextlib.suppress(Killed):
            self._send()
        self._restart(OneFault())
        if self.case.recreated is Recreated.AGAIN and here.uuid() is None:
            self._other()
        for _ in range(_REPEATS if self.case.is_repeated else 0):
            if self.answers and self.answers[-1].status < 500 and self.answers[-1].code != "request_in_progress":
                break
            here.clock.advance(_BETWEEN)
            self._send()
        here.settle()
        if self.case.permitted is Permitted.TO_LIST and here.hidden():
            here.permit()  # what nobody could finish or rename back is finished once the service may
            here.settle()
        return self._wrong()

    def calls(self) -> list[str]:
        """Return the names of the calls of the case without its fault."""
        self._begin()
        self._restart(OneFault())
        self.here.requests.lose = self._fate
        self._send()
        return self.here.faults.names

    def _begin(self) -> None:
        self.own = self.here.table()
        if self.case.permitted is not Permitted.ALL:
            self.here.confine(*([Privilege.TABLE_LIST] if self.case.permitted is Permitted.TO_LIST else []))

    def _restart(self, faults: OneFault) -> None:
        here = self.here
        here.restart(faults)
        if self.case.keyed is Keyed.KEY:
            store = Counted(self.keys, "key", faults)
            mutations = Mutations(store, policy=policy_for(12, timedelta(minutes=30)), clock=here.clock, nonce=nonce)
            here.drops = KeyedDrops(here.drops, mutations, here.site.realm, here.forward, Patience(0.0), here.clock)

    def _fate(self, request: httpx.Request) -> str | None:
        here = self.here
        if (
            self.case.recreated is Recreated.SWAPPED
            and self.other is None
            and request.url.path.endswith("tables/rename")
        ):
            here.unregister()
            self._other()
        faults = here.requests.faults  # those of the world's own requests are others
        if not isinstance(faults, OneFault) or not faults.is_now:
            return None
        fates = {
            Fault.REQUEST_LOST: "request",
            Fault.ANSWER_LOST: "answer",
            Fault.REFUSED: "503 instead",
            Fault.FAILED: "500 after",
        }
        return fates.get(self.case.fault)

    def _other(self) -> None:
        before = self.here.data()
        self.other = self.here.table()
        self.files[self.other] = self.here.data() - before

    def _send(self) -> None:
        here, keyed = self.here, self.case.keyed
        if self.other is not None and here.uuid() == self.other and keyed is Keyed.NO:
            self.asked_for_other = True  # a request that names nothing but the name is for the table that has it
        key, uuid = ("one" if keyed is Keyed.KEY else None), (self.own if keyed is Keyed.UUID else None)
        try:
            answer = here.drop(key=key, uuid=uuid)
        except DelegationError as error:
            made = answer_of(error)
            answer = Answered(made.status, error.code, str(error))
        self.answers.append(answer)
        self.events.append(f"answered {answer.status} {answer.code or ''} {answer.text[:120]}")

    def _wrong(self) -> list[str]:
        here, last = self.here, self.answers[-1] if self.answers else Answered(0)
        named, records = here.uuid(), here.records.newest(9).tombstones
        other_is_safe = self.other is None or (named == self.other and self.files[self.other] <= here.data())
        other_was_dropped = self.asked_for_other and last.status == 204 and named is None
        own_is_gone = named != self.own and not here.hidden()
        is_refused = self.case.permitted is Permitted.NOTHING
        # Nobody renames a table back whose name is taken, and the service cannot purge it.
        is_stuck = self.case.permitted is Permitted.TO_LIST and self.case.recreated is Recreated.AGAIN
        may_be_final = last.status in {204, 404, 409} and not is_refused
        final = may_be_final or ((is_refused or is_stuck) and last.code == "SERVICE_NOT_PERMITTED")
        checks = {
            "the last answer is not final": final or not self.case.is_repeated,
            "refused before the rename, and renamed": not is_refused or (named == self.own and not records),
            "another user's table lost its name or files": other_is_safe or other_was_dropped,
            "a table is hidden": not here.hidden(),
            "204, and the table is still there": last.status != 204 or own_is_gone,
            "204, and only the other user dropped it": last.status != 204 or self._was_dropped_here(),
            "refused, and the table is gone": last.status != 409 or named is not None,
            "a record is still open": all(one.is_ended and one.check_at is None for one in records),
            "files of a table that is named are gone": named is None or self.files[named] <= here.data(),
            "an alarm": not here.failed,
        }
        return [text for text, holds in checks.items() if not holds]

    def _was_dropped_here(self) -> bool:
        """Whether a tombstone was made of the table that was asked for, and its files are gone."""
        return any(
            one.state == "DROPPED" and not (self.files[one.expected_uuid] & self.here.data())
            for one in self.here.records.newest(9).tombstones
        )


def cases(
    part: int = 1, parts: int = 1, of: Iterable[Keyed] = Keyed, world: Callable[[], Deployment] = DropWorld
) -> Iterator[Case]:
    """Return every parts-th cell; what a fault does not apply to is left out."""
    number = itertools.count()
    for permitted, keyed, recreated in itertools.product(Permitted, of, Recreated):
        if permitted is Permitted.NOTHING and recreated is not Recreated.NO:
            continue  # the name is never free, and nothing is renamed
        with contextlib.closing(world()) as here:
            names = Matrix(Case(Fault.KILLED_BEFORE, 0, keyed, recreated, permitted=permitted), here).calls()
        for (call, name), fault, is_repeated in itertools.product(enumerate(names, 1), Fault, (True, False)):
            if next(number) % parts == part - 1 and applies(fault, name):
                yield Case(fault, call, keyed, recreated, is_repeated, permitted)


def applies(fault: Fault, name: str) -> bool:
    """Whether a call can have the fault: a probe of the store is not lost, it is refused as such."""
    is_call = name.split(" ", maxsplit=1)[0] in {"GET", "POST", "HEAD", "DELETE", "tombstone", "task", "key"}
    return is_call or fault in {Fault.KILLED_BEFORE, Fault.KILLED_AFTER}


def violations(case: Case, world: Callable[[], Deployment] = DropWorld) -> list[str]:
    """Run a case in a world of its own; return what is wrong, and what happened."""
    with contextlib.closing(world()) as here:
        matrix = Matrix(case, here)
        wrong = matrix.run()
    return [*wrong, *matrix.events] if wrong else []
