"""Random stories of drops with purge: a caller, its duplicates, owners who restore, other users, kills, lost answers.

Checked by what a person sees: every table that has a name is whole, what was restored is there, what nobody dropped
keeps its files, and one key drops one table.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import httpx
from pyiceberg.serializers import FromInputFile

from delegation.gateway.drop.tombstones import Tombstone, TombstoneState
from delegation.idempotency.reservations import MemoryReservationStore
from delegation.storage.memory import Faults, Killed
from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_UNSTRUCTURED
from polaris_common.errors import DelegationError
from tests.kit.explorer import Explorer, Story, WrongOutcome
from tests.unit.gateway.drop.test_keys import with_keys
from tests.unit.gateway.drop.test_owners import Owner
from tests.unit.gateway.drop.world import HIDDEN, DropWorld

NAMES: Final = ("orders", "returns")
OTHERS: Final = ("orders_again", "elsewhere")
LIFETIME: Final = timedelta(minutes=30)
_FILES_ARE_DELETED: Final = frozenset({TombstoneState.PURGED, TombstoneState.DROPPED})


class Interrupted(Faults):
    """Counts calls; before call `at` of a process another actor acts, and from call `kill_at` on it is dead."""

    def __init__(self, at: int | None, act: Callable[[], None], *, kill_at: int | None, after: bool) -> None:
        super().__init__(kill_at=kill_at, after=after)
        self._at, self._act = at, act

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        if self._at is not None and self.calls + 1 >= self._at:
            self._at = None
            self._act()
        with super().call(name):
            yield


@contextmanager
def ids_of(seed: int) -> Iterator[None]:
    """Make every id and pause of the seed, because names with ids decide orders."""
    random.seed(seed)  # pauses between attempts
    ids = random.Random(seed)
    with (
        patch("uuid.uuid4", lambda: UUID(int=ids.getrandbits(128), version=4)),
        patch("secrets.token_hex", lambda length: ids.randbytes(length).hex()),
    ):
        yield


@dataclass
class Asked:
    """A drop that a caller sends until it has a final answer."""

    name: str
    key: str | None
    uuid: str | None
    mode: str | None
    began: datetime
    heard: int | None = None


class DropStory(Story):
    """One seed; `make gateway-stories` plays 1,000."""

    steps = 22
    surroundings = staticmethod(ids_of)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.grace = self.random.choice(["0", "1h", "7d"])
        self.world = DropWorld(grace=self.grace)
        self.close = self.world.close  # type: ignore[method-assign]
        flags = (ALLOW_OVERLAP, ALLOW_UNSTRUCTURED)
        self.world.catalog.warehouse.replace_properties(dict.fromkeys(flags, "true"))
        self.keys = MemoryReservationStore()
        self.owner = Owner(self.world)
        self.reached: dict[str, frozenset[str]] = {}
        """The files that a metadata file reaches, by its location; of every one that was ever written."""
        self.uuid_of: dict[str, str] = {}
        self.asked: list[Asked] = []
        self.targeted: set[str] = set()
        """Tables that a request may have meant: only these may ever lose files."""
        self.remains: set[str] = set()
        """Tables that were given a name again by hand after files of theirs were deleted."""
        self.depth = 0

    def begin(self) -> None:
        self.restart()
        for name in NAMES:
            self.make(name)

    def end(self) -> None:
        self.restart()
        for _ in range(3):
            self.world.clock.advance(timedelta(days=4))
            self.world.settle()
            self.check()
        self.check_keys()

    def restart(self, faults: Faults | None = None) -> None:
        """Begin new processes."""
        self.world.restart(faults)
        with_keys(self.world, self.keys)

    # acts

    def act(self) -> None:
        choices: list[Callable[[], None]] = [
            self.drop, self.drop, self.drop, self.repeat, self.repeat, self.restore, self.restore, self.run_now,
            self.time_passes, self.time_passes, self.work, self.work, self.upkeep, self.remade, self.moved, self.cloned,
            self.dropped_without_purge, self.brought_back,
        ]  # fmt: skip
        if self.depth:
            choices += [self.swapped, self.swapped, self.restore, self.work, self.cloned]
        chosen = self.random.choice(choices)
        self.told.append(f"{'  ' * self.depth}{chosen.__name__}")
        chosen()

    def process(self, work: Callable[[], object]) -> object:
        """Do something in a process that may be killed, lose answers, or be slow while others act; None if it died."""
        at = self.random.randrange(1, 14) if self.depth == 0 and self.random.random() < 0.4 else None
        kill_at = self.random.randrange(1, 25) if self.random.random() < 0.25 else None
        former, lose = self.world.faults, self.world.requests.lose
        faults = Interrupted(at, self.meanwhile, kill_at=kill_at, after=self.random.random() < 0.5)
        self.restart(faults)
        fates = [None] * 25 + ["request", "answer", "500 after", "503 instead"]
        self.world.requests.lose = lambda _request: self.random.choice(fates)
        try:
            return work()
        except Killed:
            self.told[-1] += " (killed)"
            self.world.clock.advance(timedelta(seconds=20))
            return None
        except DelegationError as error:
            self.told[-1] += f" ({error.code})"
            return error
        finally:
            self.world.requests.lose = lose
            self.restart(former if self.depth else None)

    def meanwhile(self) -> None:
        """Others act while a process is at one of its calls."""
        faults, lose, drops = self.world.faults, self.world.requests.lose, self.world.drops
        parts = {name: getattr(self.world, name) for name in ("polaris", "tasks", "tombstones", "steps", "purge")}
        behavior = self.world.behavior
        self.depth += 1
        try:
            for _ in range(self.random.choice([1, 1, 2])):
                self.world.requests.lose = lambda _request: None
                self.restart()
                self.act()
        finally:
            self.depth -= 1
            self.world.faults, self.world.requests.lose, self.world.drops = faults, lose, drops
            self.world.requests.faults = faults
            self.world.behavior = behavior
            for name, part in parts.items():
                setattr(self.world, name, part)

    def drop(self) -> None:
        name = self.random.choice(NAMES)
        uuid = self.world.uuid(name)
        number = len(self.asked)
        asked = Asked(
            name,
            key=self.random.choice([None, f"key-{number}"]),
            uuid=self.random.choice([None, None, uuid]),
            mode=self.random.choice([None, None, "wait"]),
            began=self.world.clock(),
        )
        self.asked.append(asked)
        self.send(asked)

    def repeat(self) -> None:
        """A caller that has no final answer sends its request again, as its HTTP client does, while its key lives."""
        oldest = self.world.clock() - LIFETIME
        waiting = [one for one in self.asked if (one.heard is None or one.heard >= 500) and one.began >= oldest]
        if waiting:
            self.send(self.random.choice(waiting))

    def send(self, asked: Asked) -> None:
        if (uuid := self.world.uuid(asked.name)) is not None and asked.uuid in {None, uuid}:
            self.targeted.add(uuid)

        def work() -> Any:
            answer = self.world.drop(asked.name, key=asked.key, uuid=asked.uuid, mode=asked.mode)
            # The table that got the name while the request was under way may be the one that it dropped.
            self.targeted |= {one.expected_uuid for one in self.records()}
            return answer

        answered = self.process(work)
        self.targeted |= {one.expected_uuid for one in self.records()}
        if answered is None or isinstance(answered, DelegationError):
            return
        asked.heard = answered.status  # type: ignore[attr-defined]
        self.counts[f"drop {asked.heard}"] += 1
        self.told[-1] += f" {asked} {getattr(answered, 'code', '')}"

    def restore(self) -> None:
        """An owner restores one of its tables, under its name or another."""
        records = self.records()
        if not records:
            return
        record = self.random.choice(records)
        to = self.random.choice([None, None, {"namespace": ["ns"], "name": self.random.choice(OTHERS)}])
        answered = self.process(lambda: self.owner.restore(record.tombstone_id, to))
        if not isinstance(answered, tuple):
            return
        status, body = answered
        self.counts[f"restore {status}"] += 1
        self.told[-1] += f" {record.name} {status} {body.get('error', {}).get('message', '')[:120]}"

    def run_now(self) -> None:
        records = self.records()
        if records:
            self.process(lambda: self.world.tombstones.run_now(self.random.choice(records).tombstone_id))

    def time_passes(self) -> None:
        self.world.clock.advance(self.random.choice([
            timedelta(seconds=5), timedelta(seconds=30), timedelta(minutes=3), timedelta(minutes=20),
            timedelta(hours=2), timedelta(days=3),
        ]))  # fmt: skip

    def work(self) -> None:
        self.process(self.world.run_due)

    def upkeep(self) -> None:
        self.process(self.world.upkeep)

    # what other users do; refusals do not matter

    def remade(self) -> None:
        name = self.random.choice(NAMES)
        if self.world.uuid(name) is None:
            self.make(name)

    def swapped(self) -> None:
        """Somebody gives a name to another table."""
        name = self.random.choice(NAMES)
        with refusals_ignored():
            self.world.send("DELETE", f"namespaces/ns/tables/{name}")
            self.make(name)

    def moved(self) -> None:
        """Somebody renames a table, or gives a name to it again."""
        source, to = self.random.sample([*NAMES, *OTHERS], 2)
        with refusals_ignored():
            self.world.rename(source, ("ns",), to)

    def cloned(self) -> None:
        """Somebody registers a table from a metadata file that is still there, of a present or a former state."""
        there = self.world.data()
        found = [location for location, files in self.reached.items() if files <= there]
        if found:
            with refusals_ignored():
                self.world.register(self.random.choice(sorted(found)), self.random.choice([*NAMES, *OTHERS]))

    def dropped_without_purge(self) -> None:
        with refusals_ignored():
            name = self.random.choice([*NAMES, *OTHERS])
            self.world.send("DELETE", f"namespaces/ns/tables/{name}")

    def brought_back(self) -> None:
        """Somebody who may renames a table out of the namespace of tombstones, also one that lost files already."""
        hidden = self.world.hidden()
        if hidden:
            with refusals_ignored():
                name = self.random.choice(hidden)
                location, uuid = self._loaded(HIDDEN[0], name)
                if not self.reached[location] <= self.world.data():
                    self.remains.add(uuid)
                ends = {
                    "source": {"namespace": list(HIDDEN), "name": name},
                    "destination": {"namespace": ["ns"], "name": self.random.choice([*NAMES, *OTHERS])},
                }
                self.world.send("POST", "tables/rename", ends)

    # checking

    def check(self) -> None:
        """Raise WrongOutcome if a table that has a name lacks a file, or one that nobody dropped."""
        there = self.world.data()
        for entry in self.world.send("GET", "namespaces/ns/tables").json()["identifiers"]:
            try:
                location, uuid = self._loaded("ns", entry["name"])
            except httpx.HTTPStatusError as error:
                raise WrongOutcome(f"{entry['name']} does not load: {error.response.text}") from error
            if (missing := self.reached[location] - there) and uuid not in self.remains:
                raise WrongOutcome(f"{entry['name']} lacks {sorted(missing)}")
        for location, files in self.reached.items():
            if self.uuid_of[location] not in self.targeted and not files <= there:
                raise WrongOutcome(f"nobody dropped {self.uuid_of[location]}, and it lacks {sorted(files - there)}")

    def check_keys(self) -> None:
        """Raise WrongOutcome if two tables were purged for one key."""
        purged: Counter[str] = Counter()
        for record in self.records():
            if record.scope is not None and record.state in _FILES_ARE_DELETED:
                purged[record.scope] += 1
        if any(number > 1 for number in purged.values()):
            raise WrongOutcome(f"one key purged twice: {purged}")

    def make(self, name: str) -> None:
        before = self.world.data()
        uuid = self.world.table(name)
        for location in sorted(self.world.data() - before):
            if location.endswith(".metadata.json"):
                self.reached[location] = self._reached(location)
                self.uuid_of[location] = uuid

    def _reached(self, location: str) -> frozenset[str]:
        lake = self.world.lake
        metadata = FromInputFile.table_metadata(lake.io.new_input(location))
        files = {location}
        for snapshot in metadata.snapshots:
            files.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(lake.io):
                files.add(manifest.manifest_path)
                files |= {one.data_file.file_path for one in manifest.fetch_manifest_entry(lake.io)}
        return frozenset(files)

    def _loaded(self, namespace: str, name: str) -> tuple[str, str]:
        """A table's metadata file and uuid."""
        table = self.world.send("GET", f"namespaces/{namespace}/tables/{name}").json()
        return str(table["metadata-location"]), str(table["metadata"]["table-uuid"])

    def records(self) -> list[Tombstone]:
        return list(self.world.records.newest(100).tombstones)


@contextmanager
def refusals_ignored() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPStatusError:
        return


EXPLORER = Explorer("tests.unit.gateway.drop.orders.stories", DropStory)

if __name__ == "__main__":
    sys.exit(EXPLORER.main(sys.argv[1:]))
