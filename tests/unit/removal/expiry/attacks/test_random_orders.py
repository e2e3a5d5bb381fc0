"""Random orders of events: writers, clones, restores, other expiries, late commits and deaths beside one expiry."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest

from delegation.polaris.answers import PolarisError, PolarisOutcomeUnknown
from delegation.polaris.model import LoadedTable
from delegation.removal.expiry.context import ExpiryContext, ExpiryResult
from delegation.removal.expiry.errors import RefLost, RefsUnknown
from delegation.removal.expiry.reduction import NeededFiles
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import ExpiryRun, expire_snapshots
from delegation.storage.memory import Faults, Killed
from polaris_common.errors import DelegationError
from tests.effort import every
from tests.kit.explorer import Explorer, Story, WrongOutcome
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import MINUTE, StoryTable
from tests.unit.removal.expiry.test_random_histories import written

_LAST_CALL = 9


class Stage(Story):
    """One expiry, and what others do beside it; an event is an attempt, until one ends.

    `late` are commits without an answer that may still be applied, `tags` the files of each tag that a user made and
    did not drop, and `asked` says that this attempt has read the other tables.
    """

    steps = 5

    def begin(self) -> None:
        self.world = ExpiringTables()
        self.late: list[Callable[[], object]] = []
        self.tags: dict[str, set[str]] = {}
        self.asked = self.others_deleted = self.is_over = False
        self.ended: ExpiryResult | DelegationError | None = None
        self.table = written(self.world, self.random)
        self.uuid = self.table.document["table-uuid"]
        self.retention = retention(self)

    def act(self) -> None:
        if self.is_over:
            return
        try:
            self.ended = expire_snapshots(attempt(self, self.retention))
            self.is_over = True
        except Killed:
            self.told.append("killed")
        except DelegationError as error:
            self.ended, self.is_over = error, not error.retryable
            self.told.append(error.code)
        self.check()
        self.asked = False
        for _ in range(0 if self.is_over else self.random.randint(0, 2)):
            self.event()

    def check(self) -> None:
        if lost := set(self.world.lake.pointers.values()) - self.world.lake.uris():
            raise WrongOutcome(f"tables have no metadata file: {sorted(lost)}")
        if missing := {name: files for name, files in self.world.lake.readable().items() if files}:
            raise WrongOutcome(f"tables miss files: {missing}")

    def end(self) -> None:
        """Check that the files of a tag are there that neither the plan removes nor another expiry deletes."""
        self.world.plans.faults = Faults()
        planned = self.world.plan().removal.refs if self.world.head.read() else {}
        for name, files in self.tags.items():
            kept = name not in self.table.refs and name not in planned and not self.others_deleted
            if kept and not files <= self.world.lake.uris():
                raise WrongOutcome(f"the tag {name} misses files")
        if isinstance(self.ended, (RefLost, RefsUnknown)) and self.ended.code not in self.told:
            raise WrongOutcome(f"the task ended with {self.ended.code}, which no attempt raised")

    def is_there(self) -> bool:
        return "t" in self.world.lake.pointers

    def event(self) -> None:
        """Have somebody do something."""
        if self.is_there():
            act = self.random.choice(ACTS) if self.table.ids else append
            self.told.append(act.__name__)
            act(self)

    def events(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.event()

    def may_reference(self, files: set[str]) -> bool:
        """Whether a reference to files that is made now is one that the expiry promises to see."""
        return not self.asked and files <= self.world.lake.uris()


def append(stage: Stage) -> None:
    stage.table.append()


def delete_files(stage: Stage) -> None:
    if live := stage.table.live():
        stage.table.delete(stage.random.choice(live))


def rewrite(stage: Stage) -> None:
    stage.table.rewrite_manifests()


def tag(stage: Stage) -> None:
    snapshot_id = stage.random.choice(stage.table.ids)
    name = f"user{stage.world.lake.next()}"
    stage.table.tag(name, snapshot_id)
    stage.tags[name] = stage.world.lake.read_by(stage.table.document, [snapshot_id])


def branch(stage: Stage) -> None:
    name = f"side{stage.world.lake.next()}"
    stage.table.branch(name, stage.random.choice(stage.table.ids))
    if stage.random.random() < 0.5:
        stage.table.append(ref=name)


def move_ref(stage: Stage) -> None:
    refs = stage.table.document.get("refs") or {}
    branches = [name for name, ref in refs.items() if ref["type"] == "branch"]
    if branches:
        stage.table.branch(stage.random.choice(branches), stage.random.choice(stage.table.ids))


def drop_ref(stage: Stage) -> None:
    if others := sorted(stage.table.refs.keys() - {"main"}):
        name = stage.random.choice(others)
        stage.table.drop_ref(name)
        stage.tags.pop(name, None)


def bring_back(stage: Stage) -> None:
    known = sorted({path for one in stage.world.lake.manifests for path in stage.world.lake.live(one)})
    if found := [path for path in known if path in stage.world.lake.uris()]:
        stage.table.append(paths=[stage.random.choice(found)])


def restore(stage: Stage) -> None:
    """Give the table an older metadata file again, if all that it names is there."""
    lake = stage.world.lake
    log = [one["metadata-file"] for one in stage.table.document.get("metadata-log") or ()]
    pointer = stage.random.choice([*log, stage.table.pointer])
    if pointer in lake.uris():
        document = lake.document(pointer)
        named = {one["metadata-file"] for one in document.get("metadata-log") or ()}
        if document["table-uuid"] == stage.uuid and lake.read_by(document) | named <= lake.uris():
            lake.pointers["t"] = pointer
            stage.tags = {name: files for name, files in stage.tags.items() if name in stage.table.refs}


def clone(stage: Stage) -> None:
    lake = stage.world.lake
    log = [one["metadata-file"] for one in stage.table.document.get("metadata-log") or ()]
    pointer = stage.random.choice([*log, stage.table.pointer])
    if pointer in lake.uris():
        document = lake.document(pointer)
        named = {one["metadata-file"] for one in document.get("metadata-log") or ()}
        if stage.may_reference({pointer} | lake.read_by(document) | named):
            lake.pointers[f"clone{lake.next()}"] = pointer


def add_files(stage: Stage) -> None:
    files = sorted(stage.world.lake.live_anywhere())
    if files and stage.may_reference(set(files[:1])):
        other = StoryTable.create(stage.world.lake, f"other{stage.world.lake.next()}")
        other.append(paths=[stage.random.choice(files)])


def metadata_only(stage: Stage) -> None:
    if loose := sorted(set(stage.table.ids) - set(stage.table.refs.values())):
        stage.table.remove_snapshots(stage.random.choice(loose))


def metadata_only_with_its_tags(stage: Stage) -> None:
    if loose := sorted(set(stage.table.ids) - {stage.table.refs.get("main")}):
        stage.table.remove_snapshots(stage.random.choice(loose))


def second_expiry(stage: Stage) -> None:
    stage.others_deleted = True
    with suppress(DelegationError):
        ExpiringTables(lake=stage.world.lake).expire(stage.table, retention(stage), task_id="second")


def late_commit(stage: Stage) -> None:
    if stage.late:
        with suppress(PolarisError):
            stage.late.pop()()


def keep_metadata(stage: Stage) -> None:
    stage.table.set(**{"write.metadata.delete-after-commit.enabled": stage.random.choice(["true", "false"])})


ACTS: list[Callable[[Stage], None]] = [
    append, delete_files, rewrite, tag, tag, branch, move_ref, drop_ref, bring_back, restore, clone, clone, add_files,
    metadata_only, metadata_only_with_its_tags, second_expiry, late_commit, late_commit, keep_metadata,
]  # fmt: skip


def retention(stage: Stage) -> Retention:
    since = stage.world.lake.now_ms - stage.random.randint(-1, 6) * MINUTE
    age = stage.random.choice([None, None, MINUTE, 5 * MINUTE])
    return Retention(older_than_ms=since, retain_last=stage.random.choice([1, 1, 2]), max_ref_age_ms=age)


def attempt(stage: Stage, asked: Retention) -> ExpiryContext:
    """Return the context of an attempt among events."""
    choose = stage.random
    faults = Faults(kill_at=choose.choice([None, choose.randint(1, 60)]), after=choose.random() < 0.5)
    ctx = stage.world.context(stage.table, asked, faults=faults)
    catalog, neighbours = stage.world.catalogs[-1], ctx.neighbours
    for at in choose.sample(range(1, _LAST_CALL), choose.randint(0, 4)):
        catalog.before[at] = stage.events
    commit = catalog.commit_table

    def arrives(*call: Any) -> LoadedTable:
        catalog.faults = Faults()
        return commit(*call)

    def unanswered(*call: Any, **_: Any) -> LoadedTable:
        if choose.random() < 0.4:
            stage.late.append(lambda: arrives(*call))
            raise PolarisOutcomeUnknown("Polaris did not answer", status=None)
        return commit(*call)

    def asking(roots: object) -> object:
        stage.asked = True
        return neighbours(roots)  # type: ignore[arg-type]

    catalog.commit_table = unanswered  # type: ignore[method-assign]
    object.__setattr__(ctx, "neighbours", asking)
    stage.asked = False
    return ctx


EXPLORER = Explorer(
    __name__,
    Stage,
    mutations={
        "others": lambda: patch.object(NeededFiles, "add_neighbours", lambda *_: None),
        "subtraction": lambda: patch.object(ExpiryRun, "_subtract", lambda *_: None),
    },
)


@pytest.mark.parametrize("first", every(3, range(0, 150, 25)))
def test_in_any_order_nothing_that_anyone_can_read_is_deleted(first: int) -> None:
    EXPLORER.total(range(first, first + 25))


@pytest.mark.parametrize("mutation", EXPLORER.mutations)
def test_the_orders_notice_that_a_safeguard_is_missing(mutation: str) -> None:
    assert EXPLORER.first_bad(mutation, range(10)) is not None
