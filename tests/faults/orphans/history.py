"""Writers, clones, expiries, purges and sweeps of orphan files in any order over one catalog, and a model of it.

The model is the warehouse itself, which remembers what every manifest was written with: before and after each delete of
a sweep, all that the catalog's tables name and that was there is there. Expiries and purges are killed at random calls
too, and finished later: until then their plans are claims of unfinished tasks.

Beside them are tables that the catalog does not list: unregistered, of a second catalog, path tables, forks, hidden
ones that come back. What they name counts as well, and a sweep that finds such a table where there is none is counted
as needless. There are views, commits in flight and lost ones, trimmed logs, and a table that commits late, as it says.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from delegation.errors import GuardRefused
from delegation.references.errors import ReferencesNotKnown
from delegation.removal.attempt import PlanHead
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.orphans.context import Claim
from delegation.removal.orphans.details import ApprovalLimits
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.run import remove_orphan_files
from delegation.removal.path_guard import ORPHAN_AGE
from delegation.removal.purge.context import PurgeContext
from delegation.removal.purge.requests import PurgeSettings
from delegation.removal.purge.run import purge_table
from delegation.storage.locations import FOREIGN_TABLE
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from polaris_common.errors import DelegationError
from tests.kit.explorer import Story, WrongOutcome
from tests.kit.lakes.lake import FAST, MortalAttempt
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import AT_ONCE, DAYS, SweptTables
from tests.kit.stories.tables import DELETES, PathTable, StandInCatalog, StoryTable, identifier

_ATTEMPTS = 8
_LAST = 3
_OLD_ENOUGH = 0.7
_IN_FLIGHT = 2 * DAYS
"""How long the writer of a commit tries it: less than the age."""
_LATE = 9
"""Days that a patient table asks for."""
_VIEW = "s3://lake/wh/t/v"
_PURGES = PurgeSettings(chunk_paths=4, run_records=5, read_threads=1, delete=FAST)


@dataclass
class Unfinished:
    """A task of another operation that was killed: its table, its plan, and how its next attempt runs."""

    what: str
    table: StoryTable
    head: PlanHead
    run: Callable[[Faults], object]
    tries: int = 0


class History(Story):
    """A catalog with two tables, uncommitted files, and sweeps of the first that other acts interrupt at any call."""

    steps = 20

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = SweptTables()
        trimmed = {"write.metadata.previous-versions-max": "2"} if seed % 3 == 0 else {}
        self.tables = [self.world.table("t", **trimmed), self.world.table("u")]
        self.written: list[str] = []
        self.made = 0
        self.wrong: list[str] = []
        self.elsewhere: dict[str, tuple[StoryTable, str]] = {}
        self.unfinished: list[Unfinished] = []
        self.uuids: set[str] = set()
        self.hidden: tuple[StoryTable, str] | None = None
        self.viewed: set[str] = set()
        self.staged: list[tuple[str, str, int]] = []
        self.is_patient = seed % 4 == 0
        self.late: dict[str, int] = {}
        self.by_name: set[str] = set()
        """What expiries and purges deleted, which take a key and its percent-encoded form for two objects."""

    def act(self) -> None:
        """Do one thing that a writer does; a step of time may pass."""
        act = self.random.choice(_ACTS)
        self.told.append(act.__name__)
        getattr(self, act.__name__)()

    def check(self) -> None:
        if gone := needed_and_gone(self):
            self.wrong.append(f"{sorted(gone)} are gone and needed")
        if self.wrong:
            raise WrongOutcome("; ".join(self.wrong))

    def write(self) -> None:
        """Write a file that may be committed later, or never."""
        self.made += 1
        folder = self.random.choice(["data", "data/p=a b", "data/p=1", "metadata"])
        self.written.append(self.world.orphan(f"s3://lake/wh/t/{folder}/w{self.made}.parquet"))

    def commit(self) -> None:
        """Commit a file that was written at any time and is still there, perhaps spelled another way."""
        there = sorted(set(self.written) & self.world.lake.uris())
        if there:
            path = self.random.choice(there)
            spelled = self.random.choice([path, path.replace("s3:", "s3a:"), path.replace(" ", "%20")])
            self.random.choice(self.tables).append(paths=[spelled], content=self.random.choice([0, DELETES]))

    def rewrite(self) -> None:
        """Write an object again under the key that it had."""
        self._rewritten(self.written)

    def _rewritten(self, some: Sequence[str]) -> str | None:
        if not some:
            return None
        return self.world.orphan(self.random.choice(some), self.random.choice([b"orphan", b"again"]))

    def new_table(self) -> None:
        self.made += 1
        self.tables.append(StoryTable.create(self.world.lake, f"n{self.made}"))
        self.commit()

    def clone(self) -> None:
        """Register the first table under another name, or drop the clone."""
        if self.world.lake.pointers.pop("clone", None) is None and self.random.random() < 0.5:
            self.world.lake.pointers["clone"] = self.tables[0].pointer

    def unlist(self) -> None:
        """Write a table below or at the location that another catalog has, or none any more."""
        self.made += 1
        kind = self.random.choice([StoryTable, PathTable])
        name = f"x{self.made}"
        folder = self.random.choice([f"s3://lake/wh/t/{name}", f"s3://lake/wh/t/data/{name}", "s3://lake/wh/t"])
        folder = folder if kind is StoryTable else f"s3://lake/wh/t/{name}"
        table = kind.create(self.world.lake, name, folder=folder)
        table.append(1)
        self.uuids.add(str(table.document["table-uuid"]))
        self.elsewhere[name] = (table, self.world.lake.pointers.pop(name))

    def commit_elsewhere(self) -> None:
        """Commit to such a table, perhaps with a file that nobody took before, or replace its snapshots."""
        # A fork shares files with the first table, whose expiry deletes them.
        names = sorted(one for one in self.elsewhere if not one.startswith("f"))
        if not names:
            return
        name = self.random.choice(names)
        table, pointer = self.elsewhere[name]
        self.world.lake.pointers[name] = pointer
        there = sorted(set(self.written) & self.world.lake.uris() - self.world.live())
        if there and self.random.random() < 0.5:
            path = self.random.choice(there)
            self.written.remove(path)
            table.append(paths=[path])
        elif self.random.random() < 0.3:
            table.rewrite_manifests()
        else:
            table.append(1)
        self.elsewhere[name] = (table, self.world.lake.pointers.pop(name))

    def fork(self) -> None:
        """Register the first table elsewhere and commit to both, twice to the second registration."""
        self.made += 1
        name = f"f{self.made}"
        fork = StoryTable(self.world.lake, name)
        self.world.lake.pointers[name] = self.tables[0].pointer
        self.tables[0].append(1)
        for _ in range(2):
            fork.append(1)
        self.uuids.add(str(fork.document["table-uuid"]))
        self.elsewhere[name] = (fork, self.world.lake.pointers.pop(name))

    def lose(self) -> None:
        """Write the metadata file of a commit that is refused then."""
        table = self.tables[0]
        self.made += 1
        name = f"{table.folder}/metadata/{self.made:05d}-lost.metadata.json"
        self.world.lake.put(name, self.world.lake.get(table.pointer))

    def hide(self) -> None:
        """Hide a table below the location from the catalog, as a soft delete does, or list it again for a while."""
        pointers = self.world.lake.pointers
        if "hidden" in pointers:
            self.hidden = (StoryTable(self.world.lake, "hidden", "s3://lake/wh/hidden"), pointers.pop("hidden"))
        elif self.hidden is None:
            table = StoryTable.create(self.world.lake, "hidden", folder="s3://lake/wh/t/hidden")
            table.append(1)
            self.uuids.add(str(table.document["table-uuid"]))
            self.hidden = (table, pointers.pop("hidden"))
        elif self.random.random() < 0.2:
            pointers["hidden"] = self.hidden[1]

    def view(self) -> None:
        """Create a view below the location, or drop it."""
        if self.world.places:
            self.world.places.clear()
            self.viewed.clear()
        elif self.random.random() < 0.3:
            self.viewed.add(self.world.orphan(f"{_VIEW}/metadata/{self._name('0')}.gz.json"))
            self.world.places.append(Place("view", "ns.v", _VIEW))

    def stage(self) -> None:
        """Write all of a commit but its last step."""
        table = self.tables[0]
        before = table.pointer
        table.append(1)
        self.staged.append((before, table.pointer, self.world.lake.now_ms))
        self.world.lake.pointers["t"] = before

    def land(self) -> None:
        """Finish a commit in flight if it is not lost: to another commit, or because it comes too late."""
        if self.staged:
            before, after, at = self.staged.pop(self.random.randrange(len(self.staged)))
            if before == self.tables[0].pointer and self.world.lake.now_ms - at < _IN_FLIGHT:
                self.world.lake.pointers["t"] = after
                self.counts["landed"] += 1

    def write_late(self) -> None:
        """Have another table write a file at the location that it may commit within the age that it asks for."""
        if self.is_patient:
            self.tables[1].set(**{ORPHAN_AGE: f"{_LATE}d"})
            self.late[self.world.orphan(f"s3://lake/wh/t/data/u/{self._name('late')}.parquet")] = self.world.lake.now_ms

    def change(self) -> None:
        table = self.tables[0]
        live = table.live()
        if live and self.random.random() < 0.5:
            with suppress(KeyError):
                table.delete(self.random.choice(live))
        else:
            table.rewrite_manifests()

    def forget(self) -> None:
        """Expire snapshots and keep their files, as another engine may do."""
        table = self.tables[0]
        loose = sorted(set(table.ids) - set(table.refs.values()))
        if loose:
            table.remove_snapshots(self.random.choice(loose))

    def wait(self) -> None:
        self.world.lake.pass_days(self.random.choice([0.5, 1, 3.5]))

    def sweep(self) -> None:
        """Run a sweep to its end, killed at some call, with acts in between; the model is asked at each delete."""
        world, name = self.world, self._name("sweep")
        if self.random.random() < _OLD_ENOUGH:
            world.lake.pass_days(3.5)
        world.head = PlanHead()
        limits = self.random.choice([AT_ONCE, ApprovalLimits(max_share=0.3)])
        for attempt in range(_ATTEMPTS):
            kill = self.random.randint(5, 120) if attempt < _ATTEMPTS - 1 else None
            ctx = world.context(self.tables[0], task_id=name, limits=limits, faults=Faults(kill_at=kill))
            world.passes.late = self.random.choice([0, 0, 1])
            self._between(ctx)
            try:
                result = remove_orphan_files(ctx)
            except (Killed, ReferencesNotKnown):
                continue
            except GuardRefused:
                return
            except DelegationError as error:
                if not error.retryable:
                    raise
                continue
            self.counts["swept"] += result.files_deleted
            self.counts["finished"] += result.status == "SWEPT"
            found = [one for finding in result.findings if finding.code == FOREIGN_TABLE for one in finding.sample]
            self.counts["foreign"] += bool(found)
            needless = [one for one in found if one.partition(" ")[0] not in self.uuids]
            self.wrong += [f"a sweep found {one}, and no unlisted table is there" for one in needless]
            return

    def expire(self) -> None:
        """Have the service expire snapshots of the first table; it may die at any call, and is finished later."""
        table, name, head = self.tables[0], self._name("expiry"), PlanHead()
        world = ExpiringTables(lake=self.world.lake, plans=self.world.plans, head=head)
        keep = Retention(older_than_ms=2**62, retain_last=self.random.randint(1, 3))

        def run(faults: Faults) -> None:
            self.counts["expired"] += expire_snapshots(
                world.context(table, keep, task_id=name, faults=faults)
            ).files_deleted

        self._begin(Unfinished("expiry", table, head, run))

    def purge(self) -> None:
        """Drop another table and have the service purge it; it may die at any call, and is finished later."""
        if len(self.tables) < _LAST:
            return
        table, name, head = self.tables.pop(), self._name("purge"), PlanHead()
        uuid = str(table.document["table-uuid"])
        self.world.dying.add(table.name)

        def run(faults: Faults) -> None:
            self.world.attempts += 1
            attempt = MortalAttempt(name, self.world.attempts, head=head)
            attempt.faults = self.world.plans.faults = faults
            store = MemoryObjectStore(faults=faults)
            store.objects = self.world.lake.objects
            self.counts["purged"] += purge_table(
                PurgeContext(
                    attempt=attempt,
                    identifier=identifier(table.name),
                    table_uuid=uuid,
                    tables=StandInCatalog(table, faults),
                    store=store,
                    plans=self.world.plans,
                    settings=_PURGES,
                    neighbours=lambda _roots: list(self.world.others(table.name)),
                    now=lambda: 0.0,
                    sleep=lambda _seconds: None,
                )
            ).files_deleted
            # The catalog's entry goes last.
            del self.world.lake.pointers[table.name]
            self.world.dying.discard(table.name)

        self._begin(Unfinished("purge", table, head, run))

    def finish(self) -> None:
        """Let an unfinished task have its next attempt."""
        if self.unfinished:
            self._try(self.random.choice(self.unfinished))

    def finish_all(self) -> None:
        """Let every unfinished task end; a table whose purge failed is dropped."""
        while self.unfinished:
            self._try(self.unfinished[0])
        for name in self.world.dying:
            self.world.lake.pointers.pop(name, None)

    def _begin(self, task: Unfinished) -> None:
        if any(one.what == task.what for one in self.unfinished):
            return
        self.unfinished.append(task)
        self._try(task)

    def _try(self, task: Unfinished) -> None:
        task.tries += 1
        kill = None if task.tries >= _LAST else self.random.choice([None, self.random.randint(3, 60)])
        before = self.world.lake.uris()
        try:
            task.run(Faults(kill_at=kill))
        except Killed:
            pass
        except DelegationError:
            # It failed, and is not tried again; a table whose purge failed stays as it is.
            self.unfinished.remove(task)
        else:
            self.unfinished.remove(task)
        self.by_name |= before - self.world.lake.uris()
        self.world.claimed = [one for each in self.unfinished for one in _claims(each)]

    def _name(self, what: str) -> str:
        self.made += 1
        return f"{what}{self.made}"

    def _between(self, ctx) -> None:  # type: ignore[no-untyped-def]
        """Have writers act while the sweep waits for the references, and the model checked around each delete."""

        def before() -> None:
            if self.random.random() < 0.5:
                self.random.choice(_QUICK)(self)
            if self.random.random() < 0.3:
                self.commit_elsewhere()

        self.world.passes.before = before
        usual = ctx.store.delete_unchanged

        def delete(bucket: str, listed):  # type: ignore[no-untyped-def]
            uris = [f"s3://{bucket}/{one.key}" for one in listed]
            fresh = self._rewritten(uris) if self.random.random() < 0.3 else None
            needed = self.world.live() | self.reach_elsewhere()
            there = needed & self.world.lake.uris() | ({fresh} if fresh else set())
            found = usual(bucket, listed)
            self.wrong += [f"a sweep deleted {one}, which is needed" for one in there - self.world.lake.uris()]
            return found

        ctx.store.delete_unchanged = delete

    def reach_elsewhere(self) -> set[str]:
        """Return what tables name that the catalog does not list, and what else may be there still."""
        unlisted = [pointer for _, pointer in (*self.elsewhere.values(), *((self.hidden,) if self.hidden else ()))]
        pointers = (pointer for pointer in unlisted if pointer in self.world.lake.uris())
        late = {one for one, at in self.late.items() if self.world.lake.now_ms - at < _LATE * DAYS}
        return set().union(self.viewed, late, *map(self.world.reach, pointers))


_QUICK: list[Callable[[History], None]] = [
    History.commit,
    History.commit,
    History.new_table,
    History.write,
    History.clone,
    History.lose,
    History.fork,
    History.stage,
    History.land,
]
_ACTS: list[Callable[[History], None]] = [
    History.write, History.write, History.write, History.commit, History.rewrite, History.new_table, History.clone,
    History.change, History.forget, History.wait, History.wait, History.wait, History.sweep, History.sweep,
    History.expire, History.purge, History.finish, History.finish, History.lose, History.lose, History.unlist,
    History.commit_elsewhere, History.fork, History.hide, History.view, History.stage, History.land, History.land,
    History.write_late,
]  # fmt: skip


def _claims(task: Unfinished) -> Sequence[Claim]:
    uuid, segments = str(task.table.name), task.head.read()
    if not segments:
        return [Claim(task.what, uuid, task.table.folder, None)] if task.what == "purge" else []
    return [Claim(task.what, uuid, task.table.folder, one) for one in segments]


def needed_and_gone(history: History) -> set[str]:
    """Return the objects that readers of tables open, in any spelling, that were written once and are gone.

    What only entries with status DELETED name is not among them: an expiry deletes such a file, a sweep never does.
    """
    lake = history.world.lake
    # What a second registration shares with the first the expiry of that one deletes.
    own = [(table, pointer) for table, pointer in history.elsewhere.values() if not table.name.startswith("f")]
    own += [history.hidden] if history.hidden else []
    theirs = history.viewed | {pointer for _, pointer in own}.union(
        *(lake.read_by(lake.document(one)) for _, one in own)
    )
    names = {one.replace("s3a:", "s3:") for one in history.world.read()}
    encoded = {one.replace("%20", " ") for one in names if "%20" in one} - history.by_name
    return ({one for one in names if "%20" not in one} | encoded | theirs) - history.world.lake.uris()
