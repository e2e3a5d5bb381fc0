"""A fleet of processes that commit to one reference, simulated in virtual time: every call of the store takes 5 ms.

Threads take turns, one runs at a time, so a run is the same for the same seed. Commits arrive at random (open loop); a
commit waits for an idle process, and its latency counts from its arrival.
"""

import heapq
import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.commits.committer import CommitRetries, Committer
from polaris_persistence.commits.waiting import WAITING_TYPES, ChangeKind
from polaris_persistence.errors import CommitContended, CommitOutcomeUnknown, CommitUnknown
from polaris_persistence.ids.snowflake import EPOCH_MS, join_id
from polaris_persistence.objects.cache import Cache
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.objects.types import ObjectTypes
from tests.persistence.builders import TYPES, CommitterKilled, Head, add

CALL = 0.005
STARTED_MS = EPOCH_MS + 10_000_000


class VirtualTime:
    """Actors in threads that run one at a time, each until it sleeps; time jumps to the next one that wakes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.failures: list[BaseException] = []
        self._turns: list[tuple[float, int, threading.Semaphore]] = []
        self._number = itertools.count()
        self._back = threading.Semaphore(0)

    def sleep(self, seconds: float) -> None:
        """Let others run for `seconds`."""
        turn = threading.Semaphore(0)
        heapq.heappush(self._turns, (self.now + seconds, next(self._number), turn))
        self._back.release()
        turn.acquire()

    def start(self, actor: Callable[[], None]) -> None:
        """Run an actor in a thread from now on."""
        turn = threading.Semaphore(0)
        heapq.heappush(self._turns, (self.now, next(self._number), turn))

        def run() -> None:
            turn.acquire()
            try:
                actor()
            except BaseException as error:  # noqa: BLE001 - raised again by the run
                self.failures.append(error)
            self._back.release()

        threading.Thread(target=run, daemon=True).start()

    def run(self) -> None:
        """Run until every actor has ended; raise what one of them raised."""
        while self._turns:
            at, _, turn = heapq.heappop(self._turns)
            self.now = max(self.now, at)
            turn.release()
            self._back.acquire()
        if self.failures:
            raise self.failures[0]


class FleetBackend(MemoryBackend):
    """A store whose calls take CALL seconds, half of them before they are applied.

    Of the conditional calls the share `lost_answers` has no answer, before or after it was applied; the share `kills`
    of all calls is the last of its process.
    """

    def __init__(self, time: VirtualTime, lost_answers: float = 0.0, kills: float = 0.0, seed: int = 0) -> None:
        self.time = time
        self.lost_answers = lost_answers
        self.kills = kills
        self._draw = random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.rows = 0
        self.slow = False
        super().__init__(before=self._before, after=self._after)

    def _before(self, operation: str) -> None:
        if operation == "put_row":
            self.rows += 1
        elif not operation.endswith("_row"):
            self.calls[operation] += 1
            self._pass()
            self._lose(operation)

    def _after(self, operation: str) -> None:
        if not operation.endswith("_row"):
            self._pass()
            self._lose(operation)

    def _lose(self, operation: str) -> None:
        conditional = operation in {"replace_reference", "add_waiting", "withdraw"}
        if self.slow and self._draw.random() < self.kills:
            raise CommitterKilled
        if conditional and self.slow and self._draw.random() < self.lost_answers:
            raise CommitOutcomeUnknown("cut off")

    def _pass(self) -> None:
        if self.slow:
            self.time.sleep(CALL / 2)

    @contextmanager
    def _call(self, operation: str) -> Iterator[None]:
        # Without the lock: only one actor runs at a time.
        self.before(operation)
        yield
        self.after(operation)


@dataclass
class FleetReport:
    """Latencies in seconds in the order of arrival, and what the commits cost."""

    latencies: list[float] = field(default_factory=list)
    contended: int = 0
    unknown: int = 0
    calls: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    total: int = 0

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def line(self) -> str:
        done = max(1, len(self.latencies))
        return (
            f"p50 {self.percentile(0.5):.3f} s, p99 {self.percentile(0.99):.3f} s, longest {max(self.latencies):.3f} s,"
            f" contended {self.contended}, per commit: {self.calls['replace_reference'] / done:.2f} swaps,"
            f" {sum(self.calls.values()) / done:.1f} calls, {self.rows / done:.1f} rows written"
        )


Commit = Callable[[Committer[Head], int], object]
FLEET_TYPES = ObjectTypes([*TYPES, *WAITING_TYPES])
ADD = ChangeKind[Head]("add", lambda attempt, data: add(data)(attempt))


def by_function(committer: Committer[Head], number: int) -> object:
    return committer.commit(add(f"e{number % 50}"), operation=str(number))


def by_data(committer: Committer[Head], number: int) -> object:
    return committer.commit_data(ADD.name, f"e{number % 50}", operation=str(number))


def run_fleet(
    rate: float,
    *,
    processes: int = 40,
    seconds: float = 20.0,
    commit: Commit = by_function,
    seed: int = 1,
    lost_answers: float = 0.0,
    kills: float = 0.0,
    **more: Any,
) -> FleetReport:
    """Return what `rate` commits a second cost on one head; it is checked that each took effect exactly once."""
    time, draw, report = VirtualTime(), random.Random(seed), FleetReport()
    backend = FleetBackend(time, lost_answers, kills, seed)
    fleet = [process_of(backend, time, node, **more) for node in range(processes)]
    fleet[0][0].create_reference("main")
    arrivals = list(itertools.takewhile(lambda at: at < seconds, itertools.accumulate(_gaps(draw, rate))))
    report.total = len(arrivals)
    waiting = list(enumerate(arrivals))[::-1]
    backend.slow = True

    def work(node: int) -> None:
        while waiting:
            number, at = waiting.pop()
            if at > time.now:
                time.sleep(at - time.now)
            try:
                commit(fleet[node][1], number)
                report.latencies.append(time.now - at)
            except CommitContended:
                report.contended += 1
            except (CommitUnknown, CommitterKilled):
                report.unknown += 1

    order = list(range(processes))
    draw.shuffle(order)
    for node in order:
        time.start(lambda node=node: work(node))  # type: ignore[misc]
    time.run()
    report.calls, report.rows = backend.calls.copy(), backend.rows
    _check(backend, time, report)
    return report


def _gaps(draw: random.Random, rate: float) -> Iterator[float]:
    while True:
        yield draw.expovariate(rate)


def process_of(backend: Backend, time: VirtualTime, node: int, **more: Any) -> tuple[CatalogStore, Committer[Head]]:
    sequence = itertools.count()
    draw = random.Random(node)

    def new_id() -> int:
        return join_id(STARTED_MS - EPOCH_MS + int(time.now * 1_000), node, next(sequence) % 4_096)

    store = CatalogStore(
        backend, realm="r", catalog="c", types=more.pop("types", FLEET_TYPES),
        cache=Cache(10_000_000, clock=lambda: time.now), new_id=new_id,
        now_us=lambda: int((STARTED_MS / 1_000 + time.now) * 1_000_000),
    )  # fmt: skip
    settings = {"retry": CommitRetries(), "draw": draw.random, "kinds": [ADD], **more}
    return store, Committer(store, "main", Head, sleep=time.sleep, clock=lambda: time.now, **settings)


def _check(backend: FleetBackend, time: VirtualTime, report: FleetReport) -> None:
    """Every commit that was acknowledged is in the log once, and no other unless its outcome is unknown."""
    backend.slow = False
    store, committer = process_of(backend, time, 1_000)
    log = [name for one in committer.log() for name in one.value.operations]
    assert len(set(log)) == len(log)
    assert len(report.latencies) <= len(log) <= len(report.latencies) + report.unknown
    head = committer.head()
    assert head is not None
    found = store.fetch_many([ObjectRef(*ref) for ref in head.value.entities.values()])
    assert sum(one.value.number for one in found if one) == len(log)  # type: ignore[attr-defined]
