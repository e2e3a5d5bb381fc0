"""Commits of many processes on DynamoDB Local, with kills, lost answers, jumping clocks and maintenance, all at once.

    make linearizability PROCESSES=40 SECONDS=90

Maintenance with a small grace deletes old commits meanwhile, so an observer reads the log as it grows. Afterwards
what the processes said is held against it, and the store must hold all that the head needs and nothing else. Prints
totals, and exits with 1 if anything is lost, doubled, torn, misordered, or kept for ever, or if fewer than 95 % of the
commits were acknowledged. Those of a process that was suspended or killed during the commit do not count.

`ARGS="--freeze-every 5"` suspends a process about every 5 seconds for longer than two sweeps, `--former COMMIT` lets
every third process run the release of that commit (it is not suspended).
"""

import argparse
import contextlib
import random
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.local.aws.dynamodb import DynamoDbLocal
from polaris_persistence.backends.base import Backend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.commits.entities import HEAD_TYPE, EntityHead
from polaris_persistence.commits.log import read_log
from polaris_persistence.commits.waiting import OUTCOMES_TYPE, WAITING_TYPES
from polaris_persistence.index.stripes import STRIPES
from polaris_persistence.maintenance.run import SweepPolicy
from polaris_persistence.objects.objects import ObjectRef
from polaris_persistence.objects.store import CatalogStore
from polaris_persistence.testing.rows import all_rows
from tests.paths import ROOT
from tests.persistence.builders import ENTITY
from tests.persistence.contract.backends import create_tables, dynamodb_client
from tests.persistence.linearizability.history import Acknowledged, Outage, acknowledged, contradictions
from tests.persistence.linearizability.keeper import Duty
from tests.persistence.linearizability.processes import Process
from tests.persistence.linearizability.worker import Orders, catalog_of, numbers_of, process_of

GRACE = 12.0
"""Seconds; the deadline of commits is well below it, as CommitRetries demands."""
DEADLINE = 6.0
JUMP = 30.0
_LOOK = 0.5
LEAST_ACKNOWLEDGED = 0.95
"""The share of the commits, begun outside of outages, that must be acknowledged."""
FROZEN_FOR = 3.0
"""How many grace periods a process is suspended: two sweeps delete meanwhile."""


@dataclass(frozen=True)
class Play:
    """What to run: so many processes at any time, for so many seconds, a kill about every `kill_every` seconds.

    A process is suspended about every `freeze_every` seconds, and every third one runs the package in `former`.
    """

    processes: int = 40
    seconds: float = 90.0
    kill_every: float = 1.5
    seed: int = 1
    grace: float = GRACE
    jump: float = JUMP
    freeze_every: float | None = None
    former: Path | None = None


class Observer:
    """Reads the log as it grows, from a store of its own without a cache."""

    def __init__(self, store: CatalogStore) -> None:
        self.log: list[Any] = []
        self._store = store
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK):
            self._read()

    def _read(self) -> None:
        last = self.log[-1].key.id if self.log else None
        new: list[Any] = []
        for one in read_log(self._store, self._store.current_reference("main").head, EntityHead):
            if one.key.id == last:
                break
            new.append(one)
        self.log += reversed(new)


@dataclass
class Outcome:
    """What happened, and every contradiction."""

    said: list[dict[str, Any]] = field(default_factory=list)
    maintained: list[dict[str, Any]] = field(default_factory=list)
    log: list[Any] = field(default_factory=list)
    kills: int = 0
    keeper_kills: int = 0
    outages: list[Outage] = field(default_factory=list)
    slow_reads: int = 0
    problems: list[str] = field(default_factory=list)

    def count(self, what: str) -> int:
        return sum(one["what"] == what for one in self.said)

    @property
    def acknowledged(self) -> Acknowledged:
        return acknowledged(self.said, self.outages)

    def failed(self) -> bool:
        return bool(self.problems) or self.acknowledged.share < LEAST_ACKNOWLEDGED

    def deleted(self) -> int:
        return sum(one.get("deleted", 0) for one in self.maintained)

    def lines(self) -> list[str]:
        waits = sorted(self.waits())
        p50, p99 = (waits[int(len(waits) * part)] if waits else 0.0 for part in (0.5, 0.99))
        count, share = self.count, self.acknowledged
        return [
            *self.problems[:20],
            f"{self.kills} processes and {self.keeper_kills} maintenance processes killed",
            f"{len(self.outages)} processes suspended past two sweeps",
            f"{count('begin')} commits begun: {count('done')} acknowledged (p50 {p50:.2f} s, p99 {p99:.2f} s)",
            f"{count('unknown')} unknown, {count('failed')} failed; {len(self.log)} in the log",
            f"{len(self.maintained)} runs of maintenance deleted {self.deleted()} objects",
            f"{count('read')} reads held against the log, {self.slow_reads} too slow for it",
            f"{len(self.problems)} lost, doubled, torn, misordered or kept for ever",
            f"{share.share:.1%} of {share.begun} outside of outages acknowledged, {LEAST_ACKNOWLEDGED:.0%} demanded",
        ]

    def waits(self) -> Iterator[float]:
        begun = {one["operation"]: one["at"] for one in self.said if one["what"] == "begin"}
        return (one["at"] - begun[one["operation"]] for one in self.said if one["what"] == "done")


class Fleet:
    """The processes, and who kills them."""

    def __init__(self, url: str, tables: tuple[str, str], play: Play) -> None:
        self._play = play
        self._draw = random.Random(play.seed)
        self._at: dict[str, Any] = {"url": url, "objects": tables[0], "references": tables[1], "jump": play.jump}
        self._all: list[Process] = []
        self._running: list[Process] = []
        self._keepers: list[Process] = []
        self._frozen: dict[int, tuple[Process, float]] = {}
        self.outages: list[Outage] = []
        self.kills = self.keeper_kills = 0

    def run(self) -> None:
        """Commit for the time of the play, with a new process for each that is killed."""
        for _ in range(self._play.processes):
            self._start()
        for one in self._running:
            one.ready()
        self._keep()
        until = time.monotonic() + self._play.seconds
        for one in self._running:
            one.begin(until)
        every = self._play.freeze_every
        kill_at, freeze_at = self._in(self._play.kill_every), self._in(every) if every else until
        while (now := time.monotonic()) < until:
            self._thaw(now)
            if now >= kill_at:
                self._kill(until)
                kill_at = self._in(self._play.kill_every)
            if every and now >= freeze_at:
                self._freeze(now)
                freeze_at = self._in(every)
            time.sleep(0.1)
        while self._frozen:
            self._thaw(time.monotonic())
            time.sleep(0.1)
        for one in self._running:
            one.finished()
        self._keepers[-1].end()

    def _in(self, seconds: float) -> float:
        return time.monotonic() + self._draw.uniform(0, 2 * seconds)

    def _freeze(self, now: float) -> None:
        """Suspend a process, one in the middle of a commit if there is one."""
        awake = [one for one in self._running if one.number not in self._frozen and not one.former]
        committing = [one for one in awake if one.said and one.said[-1]["what"] == "begin"]
        if awake:
            chosen = self._draw.choice(committing or awake)
            chosen.suspend()
            self._frozen[chosen.number] = chosen, now

    def _thaw(self, now: float) -> None:
        for number, (process, since) in list(self._frozen.items()):
            if now - since >= FROZEN_FOR * self._play.grace:
                process.resume()
                del self._frozen[number]
                # What it began just before, and what its node lease has to catch up with, is of the outage too.
                self.outages.append(Outage(number, since - _LOOK, now + _LOOK))

    def end(self) -> None:
        for one in (*self._all, *self._keepers):
            one.end()

    def said(self) -> list[dict[str, Any]]:
        return [one for process in self._all for one in process.said]

    def maintained(self) -> list[dict[str, Any]]:
        return [one for process in self._keepers for one in process.said]

    def _start(self) -> Process:
        number = len(self._all) + 1
        orders = Orders(
            **self._at,
            number=number,
            commits=1_000_000,
            seconds=DEADLINE,
            pause=4.0,
            reads=number % 4 == 0,
            as_data=number % 2 == 0,
        )
        former = self._play.former if number % 3 == 0 else None
        self._all.append(Process("worker", orders, number=number, former=former))
        self._running.append(self._all[-1])
        return self._all[-1]

    def _keep(self) -> None:
        number = -1 - len(self._keepers)
        self._keepers.append(Process("keeper", Duty(**self._at, number=number, grace=self._play.grace)))

    def _kill(self, until: float) -> None:
        if time.monotonic() > until - 1:
            return
        if self._draw.random() < 0.1:
            self._keepers[-1].kill()
            self.keeper_kills += 1
            self._keep()
            return
        # On a slow machine most others have not begun yet.
        awake = [one for one in self._running if one.count("begin") and one.number not in self._frozen]
        if not awake:
            return
        killed = self._draw.choice(awake)
        self._running.remove(killed)
        killed.kill()
        self.kills += 1
        self._start().begin(until)


def play_on(url: str, tables: tuple[str, str], play: Play) -> Outcome:
    """Run a play, wait until maintenance has nothing more to delete, and check."""
    process = process_of(url, *tables, random.Random(play.seed), lossy=False)
    store = process.uncached_store("r", "c")
    store.create_reference("main")
    fleet, observer = Fleet(url, tables, play), Observer(store)
    try:
        fleet.run()
    finally:
        fleet.end()
        observer.stop()
    outcome = Outcome(fleet.said(), fleet.maintained(), observer.log, fleet.kills, fleet.keeper_kills, fleet.outages)
    slow = [one for one in outcome.said if one["what"] == "read" and one["at"] - one["began"] > play.grace / 2]
    outcome.slow_reads = len(slow)
    outcome.said = [one for one in outcome.said if one not in slow] if slow else outcome.said
    outcome.problems = contradictions(outcome.said, outcome.log)
    sweep(process, play.grace)
    outcome.problems += left_over(process.backend, catalog_of(process))
    if not outcome.count("done"):
        outcome.problems.append("no commit was acknowledged")
    return outcome


def sweep(process: PersistenceProcess, grace: float) -> None:
    maintenance = process.maintenance(SweepPolicy(grace=grace, lost_after=1.0))
    for _ in range(3):
        # The database's time is exact to a second, and the task of a killed run is free after `lost_after`.
        time.sleep(grace + 3)
        while not maintenance.run().complete:
            pass


def left_over(backend: Backend, store: CatalogStore) -> list[str]:
    """Return what the head needs and is not there, and what is there and nothing needs."""
    reference = store.current_reference("main")
    needed: set[tuple[str, int]] = set()
    found: list[str] = []
    for id_ in dict.fromkeys(reference.heads):
        head = store.fetch(ObjectRef(HEAD_TYPE.name, id_), EntityHead)
        if head is None:
            found.append(f"head {id_}, which the reference names, was deleted")
            continue
        needed |= {(HEAD_TYPE.name, id_), (OUTCOMES_TYPE.name, id_)}
        links = list(HEAD_TYPE.links(head.value, store.fetch_many))
        stripes = store.fetch_many(ref for ref in links if ref.type == STRIPES.name)
        links += [ref for one in stripes if one for ref in STRIPES.links(one.value, store.fetch_many)]
        needed |= {(ref.type, ref.id) for ref in links}
        found += [f"{name} of head {id_} was deleted" for name, one in numbers_of(store, head).items() if one is None]
    swept = {HEAD_TYPE.name, STRIPES.name, ENTITY.name, *(one.name for one in WAITING_TYPES)}
    keys = [row.key for row in all_rows(backend, limit=1_000)]
    stored = {(key.type, key.id) for key in keys if key.type in swept}
    return found + [f"{kind} {id_} is kept for ever" for kind, id_ in sorted(stored - needed)]


@contextlib.contextmanager
def tables_of(url: str) -> Iterator[tuple[str, str]]:
    """Tables that are deleted at the end."""
    with contextlib.closing(dynamodb_client(url)) as client:
        tables = create_tables(client)
        yield tables
        for table in tables:
            client.delete_table(TableName=table)


def former_package(commit: str, folder: Path) -> Path:
    """Unpack the package of a commit into a folder, and return where it is imported from."""
    archive = folder / "former.tar"
    subprocess.run(["git", "archive", "-o", str(archive), commit, "functions"], cwd=ROOT, check=True)
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "former", filter="data")
    return folder / "former" / "functions"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--kill-every", type=float, default=1.5, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--freeze-every", type=float, help="seconds between two suspensions, on average; none without")
    parser.add_argument("--former", metavar="COMMIT", help="let every third process run the release of this commit")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        former = former_package(given.former, Path(folder)) if given.former else None
        play = Play(
            given.processes, given.seconds, given.kill_every, given.seed, freeze_every=given.freeze_every, former=former
        )
        server = DynamoDbLocal(log=Path(folder) / "dynamodb.log")
        server.start()
        try:
            with tables_of(server.url) as tables:
                outcome = play_on(server.url, tables, play)
        finally:
            server.stop()
    lines = outcome.lines()
    sys.stdout.write("\n".join([f"seed {play.seed}, {play.processes} processes, {play.seconds:g} s", *lines]) + "\n")
    return 1 if outcome.failed() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
