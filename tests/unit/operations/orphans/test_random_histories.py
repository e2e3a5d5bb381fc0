"""Writers, clones, other tables and sweeps in any order over one catalog: no file that a table names is ever deleted.

The model is the warehouse itself, which remembers what every manifest was written with: before and after each act of a
sweep, all that the catalog's tables name and that was there is there.
"""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.errors import GuardRefused
from delegation.operations.orphans.approval import ApprovalLimits
from delegation.operations.orphans.phases import remove_orphan_files
from delegation.references.errors import ReferencesNotKnown
from delegation.storage.memory import Faults, Killed
from delegation.worksets.attempt import PlanHead
from tests.unit.operations.expiry.tables import DELETES, StoryTable
from tests.unit.operations.orphans.world import AT_ONCE, Beach

_STEPS = 14
_ATTEMPTS = 8


class History:
    """A catalog with two tables, uncommitted files, and a sweep of the first that other acts interrupt at any call."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.world = Beach()
        self.tables = [self.world.table("t"), self.world.table("u")]
        self.written: list[str] = []
        self.made = 0
        self.deleted_live = 0
        self.swept = 0

    def act(self) -> None:
        """Do one thing that a writer does; a step of time may pass."""
        self.choose.choice(_ACTS)(self)

    def write(self) -> None:
        """Write a file that may be committed later, or never."""
        self.made += 1
        folder = self.choose.choice(["data", "data/p=a b", "data/p=1", "metadata"])
        self.written.append(self.world.orphan(f"s3://lake/wh/t/{folder}/w{self.made}.parquet"))

    def commit(self) -> None:
        """Commit a file that was written at any time and is still there, perhaps spelled another way."""
        there = sorted(set(self.written) & self.world.lake.uris())
        if there:
            path = self.choose.choice(there)
            spelled = self.choose.choice([path, path.replace("s3:", "s3a:"), path.replace(" ", "%20")])
            self.choose.choice(self.tables).append(paths=[spelled], content=self.choose.choice([0, DELETES]))

    def rewrite(self) -> None:
        """Write an object again under the key that it had."""
        if self.written:
            self.world.orphan(self.choose.choice(self.written), self.choose.choice([b"orphan", b"again"]))

    def new_table(self) -> None:
        self.made += 1
        self.tables.append(StoryTable.create(self.world.lake, f"n{self.made}"))
        self.commit()

    def clone(self) -> None:
        """Register the first table under another name, or drop the clone."""
        if self.world.lake.pointers.pop("clone", None) is None and self.choose.random() < 0.5:
            self.world.lake.pointers["clone"] = self.tables[0].pointer

    def change(self) -> None:
        table = self.tables[0]
        live = table.live()
        if live and self.choose.random() < 0.5:
            with suppress(KeyError):
                table.delete(self.choose.choice(live))
        else:
            table.rewrite_manifests()

    def forget(self) -> None:
        """Expire snapshots and keep their files, as another engine may do."""
        table = self.tables[0]
        loose = sorted(set(table.ids) - set(table.refs.values()))
        if loose:
            table.remove_snapshots(self.choose.choice(loose))

    def wait(self) -> None:
        self.world.lake.pass_days(self.choose.choice([0.5, 1, 3.5]))

    def sweep(self) -> None:
        """Run a sweep to its end, killed at some call, with acts in between; the model is asked at each delete."""
        world, name = self.world, f"sweep{self.made}"
        self.made += 1
        world.head = PlanHead()
        limits = self.choose.choice([AT_ONCE, ApprovalLimits(max_share=0.3)])
        for attempt in range(_ATTEMPTS):
            kill = self.choose.randint(5, 80) if attempt < _ATTEMPTS - 1 else None
            ctx = world.context(self.tables[0], task_id=name, limits=limits, faults=Faults(kill_at=kill))
            world.passes.late = self.choose.choice([0, 0, 1])
            self._between(ctx)
            try:
                result = remove_orphan_files(ctx)
            except (Killed, ReferencesNotKnown):
                continue
            except GuardRefused:
                return
            self.swept += result.files_deleted
            return

    def _between(self, ctx) -> None:  # type: ignore[no-untyped-def]
        """Have writers act while the sweep waits for the references, and the model checked around each delete."""

        def before() -> None:
            if self.choose.random() < 0.5:
                self.choose.choice(_QUICK)(self)

        self.world.passes.before = before
        usual = ctx.store.delete_unchanged

        def delete(bucket: str, listed):  # type: ignore[no-untyped-def]
            if self.choose.random() < 0.3:
                self.rewrite()
            there = self.world.live() & self.world.lake.uris()
            found = usual(bucket, listed)
            self.deleted_live += len(there - self.world.lake.uris())
            return found

        ctx.store.delete_unchanged = delete


_QUICK: list[Callable[[History], None]] = [
    History.commit,
    History.commit,
    History.new_table,
    History.write,
    History.clone,
]
_ACTS: list[Callable[[History], None]] = [
    History.write, History.write, History.write, History.commit, History.rewrite, History.new_table, History.clone,
    History.change, History.forget, History.wait, History.wait, History.wait, History.sweep, History.sweep,
]  # fmt: skip


def check(seed: int) -> int:
    """Play a history; return how many files its sweeps deleted."""
    history = History(seed)
    for _ in range(_STEPS):
        history.act()
        assert history.deleted_live == 0
        assert not needed_and_gone(history)
    return history.swept


def needed_and_gone(history: History) -> set[str]:
    """Return the objects that tables name, in any spelling, that were written once and are gone."""
    names = {one.replace("s3a:", "s3:").replace("%20", " ") for one in history.world.live()}
    return names - history.world.lake.uris()


@settings(max_examples=12)
@given(st.integers(min_value=0, max_value=2**32))
def test_no_history_costs_a_table_a_file(seed: int) -> None:
    check(seed)


def test_sweeps_of_random_histories_delete_something() -> None:
    assert any(check(seed) for seed in range(60))


@pytest.mark.parametrize("seed", [3, 17, 101])
def test_what_nobody_needs_is_gone_after_a_last_sweep(seed: int) -> None:
    """Liveness: with no clone and nothing in flight, a sweep leaves only what is named, hidden or young."""
    history = History(seed)
    for _ in range(_STEPS):
        history.act()
    world = history.world
    world.passes.before = lambda: None
    world.passes.late = 0
    world.lake.pointers.pop("clone", None)
    world.lake.pass_days(4)
    world.sweep(history.tables[0])
    names = {one.replace("s3a:", "s3:").replace("%20", " ") for one in world.live()}
    below = {one for one in world.lake.uris() if one.startswith("s3://lake/wh/t/")}
    unneeded = below - names
    former = {one for one in unneeded if one.endswith(".metadata.json")}
    assert unneeded - former == set()
