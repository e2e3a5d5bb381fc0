"""Loops over items whose work reaches a store or the catalog: a failed item is set aside and does not stop the others.
An error has a scope (`DelegationError.scope`), decided where it is raised. A loop over items stops only for an error
whose scope is at least its own; every loop of the service is in the table of docs/architecture/running.md."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

from delegation.metrics import ITEMS_SET_ASIDE, MetricLines
from delegation.timestamps import utc_now
from polaris_common.errors import DelegationError, ErrorScope, printable

T = TypeVar("T")
R = TypeVar("R")
K_contra = TypeVar("K_contra", contravariant=True)

logger = logging.getLogger(__name__)
IN_A_ROW: Final = 20
"""After this many items in a row without an answer, the catalog or the store has a problem, not the items."""
MOST_WASTED: Final = timedelta(minutes=2)
"""The most time spent on failing items in one pass; the rest is left to the next pass, which omits those items."""
FIRST_PAUSE: Final = timedelta(minutes=1)
LONGEST_PAUSE: Final = timedelta(days=1)
_DOUBLED: Final = 6
"""How often a pause doubles."""
ALARM_AFTER: Final = timedelta(days=1)
UNEXPECTED: Final = "UNEXPECTED_ERROR"
"""The code of an error that no part of the service raises on purpose."""
_LONGEST_TEXT: Final = 300


def code_of(error: BaseException) -> str:
    return error.code if isinstance(error, DelegationError) else UNEXPECTED


def reason_of(error: BaseException) -> str:
    """Return code and text of an error, bounded; of an unexpected one its type too."""
    kind = "" if isinstance(error, DelegationError) else f"{type(error).__name__}: "
    return printable(f"{code_of(error)}: {kind}{error}", _LONGEST_TEXT)


@dataclass(frozen=True, slots=True)
class SetAside:
    """An item that failed `failures` times in a row since a time: its last error, and when it is tried again."""

    error: str
    since: datetime
    failures: int
    next_try: datetime

    @classmethod
    def after(
        cls, before: "SetAside | None", error: Exception, now: datetime, first_pause: timedelta, *, again: bool
    ) -> "SetAside":
        """Return the state after a failure; the pause grows only `again`, that is, if other items were answered."""
        failures = 1 if before is None else before.failures + again
        pause = min(first_pause * (1 << min(failures - 1, _DOUBLED)), LONGEST_PAUSE)
        return cls(reason_of(error), now if before is None else before.since, failures, now + pause)

    def is_overdue(self, now: datetime) -> bool:
        return now - self.since >= ALARM_AFTER


class Asides(Protocol[K_contra]):
    """Where the items that are set aside are kept: in their own records, or in the memory of the process."""

    def of(self, item: K_contra) -> SetAside | None: ...

    def put(self, item: K_contra, aside: SetAside | None) -> None: ...


class RememberedAsides(Generic[T]):
    """Asides in memory, the newest 10,000; for items whose records have no place for it."""

    def __init__(self, key: Callable[[T], str] = str, most: int = 10_000) -> None:
        self._key = key
        self._most = most
        self._aside: dict[str, SetAside] = {}

    def of(self, item: T) -> SetAside | None:
        return self._aside.get(self._key(item))

    def __len__(self) -> int:
        return len(self._aside)

    def put(self, item: T, aside: SetAside | None) -> None:
        self._aside.pop(self._key(item), None)
        if aside is not None:
            self._aside[self._key(item)] = aside
        if len(self._aside) > self._most:
            del self._aside[next(iter(self._aside))]


@dataclass(frozen=True, slots=True)
class ItemOutcome(Generic[T, R]):
    """The result of one item's work, or its error; neither if it is set aside until later."""

    item: T
    result: R | None = None
    error: Exception | None = None
    was_tried: bool = True

    @property
    def is_done(self) -> bool:
        return self.was_tried and self.error is None


def _nothing() -> None:
    """Do nothing."""


def each_item(
    items: Iterable[T],
    act: Callable[[T], R],
    *,
    name: str,
    clock: Callable[[], datetime] = utc_now,
    shown: Callable[[T], str] = str,
    stops: ErrorScope = ErrorScope.SERVICE,
    asides: Asides[T] | None = None,
    first_pause: timedelta = FIRST_PAUSE,
    in_a_row: int | None = IN_A_ROW,
    probe: Callable[[], bool] | None = None,
    checkpoint: Callable[[], object] = _nothing,
    pool: Executor | None = None,
    at_once: int | Callable[[], int] = 1,
    most_wasted: timedelta = MOST_WASTED,
    seconds: Callable[[], float] = time.monotonic,
) -> Iterator[ItemOutcome[T, R]]:
    """Yield the outcome of each item, in order; an item's error is logged, and stops no other.

    Raises an error whose scope is `stops` or wider. Also raises the last error of `in_a_row` items in a row without an
    answer (`retryable`), unless `probe` shows that other items are answered. One error object that several items raise
    counts once. `checkpoint` is called before each item and raises to stop. Items that are set aside in `asides` are
    not tried before their time. Their pauses grow if others were answered, or if `in_a_row` is None. When failing items
    have taken `most_wasted`, the rest is not yielded. With `pool` up to `at_once` items are worked on at a time.
    """
    row = _Row(name, clock, asides, first_pause, in_a_row)
    wasted, last = 0.0, None

    def tried(item: T) -> tuple[ItemOutcome[T, R], float]:
        began = seconds()
        outcome: ItemOutcome[T, R]
        try:
            outcome = ItemOutcome(item, act(item))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this item's alone
            outcome = ItemOutcome(item, None, error)
        return outcome, seconds() - began

    def tries() -> Iterator[Callable[[], tuple[ItemOutcome[T, R], float]]]:
        for item in items:
            if row.is_waiting(item):
                yield partial(_left_out, item)
            else:
                checkpoint()
                yield partial(tried, item)

    for outcome, taken in _in_order(tries(), pool, at_once):
        error = outcome.error
        if error is None:
            if outcome.was_tried:
                row.answered(outcome.item)
            yield outcome
            continue
        if scope_of(error) >= stops:
            raise error
        wasted += taken
        if error is not last:
            _log(name, shown(outcome.item), error)
            row.failed(outcome.item, error)
        last = error
        yield outcome
        if in_a_row is not None and row.length >= in_a_row:
            if probe is None or not probe():
                row.end(shown)
                raise error
            row.others_answered()
        if wasted > most_wasted.total_seconds():
            logger.warning("the remaining items are left to the next pass", extra={"action": "set aside", "loop": name})
            break
    row.end(shown)


def scope_of(error: BaseException) -> ErrorScope:
    """Return how far an error reaches; an unexpected one is the item's own."""
    return error.scope if isinstance(error, DelegationError) else ErrorScope.ITEM


def is_answer(error: BaseException) -> bool:
    """Return whether an error is an answer about its item: the catalog answered, and a repeat would get the same."""
    return scope_of(error) is ErrorScope.ITEM and not getattr(error, "retryable", False)


def _log(name: str, item: str, error: Exception) -> None:
    fields = {"action": "set aside", "loop": name, "item": item, "error_code": code_of(error)}
    if isinstance(error, DelegationError):
        logger.warning("an item failed; others continue: %s", reason_of(error), extra=fields)
    else:
        logger.error("an item failed unexpectedly; others continue", exc_info=error, extra=fields)


def _left_out(item: T) -> tuple[ItemOutcome[T, R], float]:
    return ItemOutcome(item, was_tried=False), 0.0


def _in_order(calls: Iterable[Callable[[], R]], pool: Executor | None, at_once: int | Callable[[], int]) -> Iterator[R]:
    ahead: deque[Future[R]] = deque()
    try:
        for call in calls:
            if pool is None:
                yield call()
                continue
            ahead.append(pool.submit(call))
            while len(ahead) >= (at_once if isinstance(at_once, int) else at_once()):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


class _Row(Generic[T]):
    """The items of one loop that failed one after the other, set aside once others are known to be answered. If none is
    answered, nothing is known of an item: its pause does not grow with an outage."""

    def __init__(
        self,
        name: str,
        clock: Callable[[], datetime],
        asides: Asides[T] | None,
        first_pause: timedelta,
        in_a_row: int | None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._asides = asides
        self._first_pause = first_pause
        self._failed: list[tuple[T, Exception]] = []
        self._in_a_row = in_a_row
        self._has_answered = in_a_row is None
        self._overdue: list[T] = []
        self.length = 0

    def is_waiting(self, item: T) -> bool:
        aside = None if self._asides is None else self._asides.of(item)
        if aside is None:
            return False
        if aside.is_overdue(self._clock()):
            self._overdue.append(item)
        return self._clock() < aside.next_try

    def answered(self, item: T) -> None:
        if self._asides is not None and self._asides.of(item) is not None:
            self._asides.put(item, None)
            self._overdue = [other for other in self._overdue if other is not item]
        self.others_answered()

    def others_answered(self) -> None:
        self.length, self._has_answered = 0, True
        self._settle()

    def failed(self, item: T, error: Exception) -> None:
        self._failed.append((item, error))
        if is_answer(error):
            self.others_answered()
        else:
            self.length += 1

    def _settle(self) -> None:
        failed, self._failed = self._failed, []
        if self._asides is None:
            return
        for item, error in failed:
            before, now = self._asides.of(item), self._clock()
            self._asides.put(item, SetAside.after(before, error, now, self._first_pause, again=self._has_answered))

    def end(self, shown: Callable[[T], str]) -> None:
        self._has_answered &= self._in_a_row is None or self.length < self._in_a_row
        self._settle()
        if self._overdue:
            names = [shown(item) for item in self._overdue]
            MetricLines.of_environment().put({ITEMS_SET_ASIDE: len(names)}, loop=self._name, items=names[:20])
