"""What others do between any two calls of an expiry: nothing that anyone can read is deleted, and a rerun completes."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from delegation.polaris.answers import NoSuchTable, PolarisOutcomeUnknown
from delegation.removal.attempt import PlanHead, PlanSegment, receipt_key
from delegation.removal.chunks import Phase, read_chunk
from delegation.removal.expiry.context import ExpiryIndex, ExpiryResult
from delegation.removal.expiry.errors import RefLost
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.index import load_index_as
from delegation.removal.marks import Marks
from delegation.storage.memory import Faults, Killed
from polaris_common.errors import DelegationError
from tests.effort import apart
from tests.kit.stories.expiries import SMALL, ExpiringTables
from tests.kit.stories.tables import StoryTable, Warehouse

# The calls of an undisturbed run: the load that it plans from, the commit's own load, the commit, the load that finds
# lost refs; then other tables are read; the load that is subtracted, and one before each lot.
COMMIT, COMPARE_REFS, SUBTRACT, FIRST_DELETE, LAST = 3, 4, 5, 6, 9
_MOST_ATTEMPTS = 4


@dataclass
class Story:
    """A table with an old snapshot that has a file of its own, and what a test has to find afterwards."""

    world: ExpiringTables = field(default_factory=ExpiringTables)
    promised: set[str] = field(default_factory=set)
    tagged: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.table = StoryTable.create(self.world.lake)
        self.old = self.table.append(2)
        self.old_pointer = self.table.pointer
        self.of_old = self.table.live()
        self.table.statistics(self.old)
        self.table.delete(self.of_old[0])
        self.table.append()
        self.table.rewrite_manifests()
        self.ids = set(self.table.ids)

    @property
    def lake(self) -> Warehouse:
        return self.world.lake

    def is_there(self) -> bool:
        return self.table.name in self.lake.pointers and self.old in self.table.ids

    def expire(self, before: "Mapping[int, Callable[[Story], object]]" = {}, **more: Any) -> ExpiryResult:  # noqa: B006
        """Run an attempt; each event comes just before the call of the catalog with its number."""
        ctx = self.world.context(self.table, **more)
        self.world.catalogs[-1].before |= {at: partial(event, self) for at, event in before.items()}
        return expire_snapshots(ctx)

    def promise(self, snapshot_id: int) -> None:
        """Expect what a snapshot reads to stay."""
        self.promised |= self.lake.read_by(self.table.document, [snapshot_id])


def append(story: Story) -> None:
    story.table.append()


def delete_files(story: Story) -> None:
    story.table.delete(story.table.live()[0])


def tag_old(story: Story) -> None:
    if story.is_there():
        story.table.tag("new", story.old)
        story.tagged["new"] = story.old
        story.promise(story.old)


def branch_old(story: Story) -> None:
    if story.is_there():
        story.table.branch("new", story.old)
        story.table.append(ref="new")
        story.promise(story.table.refs["new"])


def roll_back(story: Story) -> None:
    if story.is_there():
        story.table.rollback(story.old)
        story.promise(story.old)


def move_pointer_back(story: Story) -> None:
    """Give the table the metadata file from before everything, as an operator may who restores a catalog."""
    story.lake.pointers[story.table.name] = story.old_pointer
    story.promise(story.old)


def clone(story: Story) -> None:
    """Register an older metadata file under another name."""
    story.lake.pointers["clone"] = story.old_pointer
    document = story.lake.document(story.old_pointer)
    story.promised |= story.lake.read_by(document)


def add_files(story: Story) -> None:
    """Have another table take a file that only the old snapshot has."""
    other = StoryTable.create(story.lake, "other")
    other.append(paths=[story.of_old[0]])
    story.promised.add(story.of_old[0])


def bring_file_back(story: Story) -> None:
    """Add a file again to the table that only the old snapshot has."""
    story.table.append(paths=[story.of_old[0]])
    story.promised.add(story.of_old[0])


def drop(story: Story) -> None:
    story.promised |= story.lake.read_by(story.table.document, [story.table.refs["main"]])
    del story.lake.pointers[story.table.name]


def rename(story: Story) -> None:
    story.lake.pointers["renamed"] = story.lake.pointers.pop(story.table.name)


def replace(story: Story) -> None:
    """Drop the table and create another one under its name."""
    drop(story)
    StoryTable.create(story.lake).append()


def second_expiry(story: Story) -> None:
    other = ExpiringTables(lake=story.lake)
    other.expire(story.table, task_id="second")


def expire_metadata_only(story: Story) -> None:
    if story.is_there():
        story.table.remove_snapshots(story.old)


def set_property(story: Story) -> None:
    story.table.apply({"action": "set-properties", "updates": {"a": "b"}})


Event = Callable[[Story], None]
ANYWHERE: list[Event] = [
    append, delete_files, tag_old, branch_old, roll_back, drop, rename, replace, second_expiry, expire_metadata_only,
    set_property,
]  # fmt: skip
# Once the files are deleted nobody can bring them back, and what is registered while files are deleted is not seen.
UNTIL = {move_pointer_back: FIRST_DELETE, bring_file_back: FIRST_DELETE, clone: COMPARE_REFS, add_files: COMPARE_REFS}
CASES = [(event, at) for event in ANYWHERE for at in range(1, LAST + 1)]
CASES += [(event, at) for event, last in UNTIL.items() for at in range(1, last + 1)]


def until_it_ends(story: Story, **first: object) -> ExpiryResult | DelegationError:
    """Run attempts over the same plan until one ends well, or in an error that a retry does not change."""
    last: DelegationError | None = None
    for _ in range(_MOST_ATTEMPTS):
        if story.table.name not in story.lake.pointers:
            return last or NoSuchTable("dropped", status=404)
        ctx = story.world.context(story.table)
        try:
            return expire_snapshots(ctx)
        except DelegationError as error:
            last = error
            if not error.retryable:
                return error
    assert last is not None
    raise last


def check(story: Story, ended: ExpiryResult | DelegationError) -> None:
    """Check that nothing is missing that anyone reads, and that a tag that was lost is reported."""
    missing = {name: files for name, files in story.lake.readable().items() if files}
    assert missing == {}
    assert story.promised - story.lake.uris() == set()
    for name in story.tagged:
        there = story.table.name in story.lake.pointers and name in story.table.refs
        assert there or isinstance(ended, RefLost) or story.table.name not in story.lake.pointers
    assert story.world.commits() <= 1


@pytest.mark.parametrize(("event", "at"), CASES, ids=[f"{event.__name__}-{at}" for event, at in CASES])
def test_nothing_that_anyone_can_read_is_deleted(event: Event, at: int) -> None:
    story = Story()

    try:
        ended: ExpiryResult | DelegationError = story.expire({at: event})
    except DelegationError as error:
        ended = until_it_ends(story) if error.retryable else error
    check(story, ended)


def test_a_run_without_events_makes_the_calls_that_these_tests_assume() -> None:
    story = Story()
    expire_snapshots(story.world.context(story.table))
    assert (story.world.catalogs[-1].calls, story.world.commits()) == (LAST, 1)
    assert story.world.planned() & story.lake.uris() == set()


def test_a_tag_that_the_commit_removed_is_named_with_the_metadata_file_that_has_it() -> None:
    story = Story()
    before = story.lake.uris()
    with pytest.raises(RefLost, match="new at snapshot") as raised:
        story.expire({COMMIT: tag_old})

    assert before - story.lake.uris() == set()
    assert story.lake.document(raised.value.metadata_file)["refs"]["new"]["snapshot-id"] == story.old
    assert f"metadata_file => '{raised.value.metadata_file}'" in str(raised.value)
    # As the message says: the file under another name reads the tag again.
    story.lake.pointers["t_restored"] = raised.value.metadata_file
    assert story.lake.readable()["t_restored"] == set()
    again = until_it_ends(story)
    assert isinstance(again, RefLost)


def test_a_writer_that_is_first_is_followed_by_a_new_decision_and_one_commit() -> None:
    story = Story()

    result = story.expire({COMMIT: append})

    assert (result.status, story.world.commits()) == ("EXPIRED", 1)
    assert story.world.catalogs[-1].commits == 2
    assert story.of_old[0] not in story.lake.uris()


def test_writers_that_are_always_first_end_the_attempt_and_nothing_is_changed() -> None:
    story = Story()
    ctx = story.world.context(story.table)
    catalog = story.world.catalogs[-1]
    catalog.before.update({at: lambda: append(story) for at in range(COMMIT, 40, 2)})
    before = story.lake.uris()

    with pytest.raises(DelegationError) as raised:
        expire_snapshots(ctx)

    assert (raised.value.code, raised.value.retryable) == ("COMMITS_FORESTALLED", True)
    assert (before - story.lake.uris(), story.world.commits()) == (set(), 0)


@pytest.mark.parametrize("tagged", [False, True])
def test_after_a_commit_whose_answer_is_lost_nothing_is_deleted_before_a_load_shows_the_snapshots_gone(
    tagged: bool,
) -> None:
    story = Story()
    ctx = story.world.context(story.table)
    catalog = story.world.catalogs[-1]
    catalog.lost.add(1)
    if tagged:
        catalog.before[COMMIT] = lambda: tag_old(story)

    if tagged:
        with pytest.raises(RefLost):
            expire_snapshots(ctx)
        assert story.promised <= story.lake.uris()
    else:
        assert expire_snapshots(ctx).status == "EXPIRED"
        assert story.of_old[0] not in story.lake.uris()
    assert story.world.commits() == 1


def test_a_commit_that_was_never_applied_is_made_by_the_next_attempt() -> None:
    story = Story()
    ctx = story.world.context(story.table)
    story.world.catalogs[-1].dropped.add(1)
    before = story.lake.uris()

    with pytest.raises(PolarisOutcomeUnknown):
        expire_snapshots(ctx)
    assert before - story.lake.uris() == set()

    ended = until_it_ends(story)
    assert isinstance(ended, ExpiryResult)
    assert (ended.status, story.world.commits()) == ("EXPIRED", 1)


def test_what_an_executor_that_outlived_its_attempt_marks_after_the_plan_was_reduced_counts_once() -> None:
    """It deletes and marks a chunk of the former plan, whose files the reduced plan has as well."""
    story = Story()
    before = story.lake.uris()
    ctx = story.world.context(story.table)
    story.world.catalogs[-1].before[FIRST_DELETE] = lambda: bring_file_back(story)
    usual, late, plans = ctx.attempt.replace_plan, list[str](), story.world.plans

    def replaced(segment: PlanSegment, *, files_planned: int) -> tuple[PlanSegment, ...]:
        former = load_index_as(ExpiryIndex, plans, ctx.attempt.plan()[-1])
        found = usual(segment, files_planned=files_planned)
        for chunk in former.chunks:
            paths = [path for path, _, _ in read_chunk(plans, former.plan_id, chunk)]
            if chunk.kind is not Phase.KEPT and not late and story.of_old[0] not in paths:
                late.extend(paths)
                for path in paths:
                    del story.lake.objects["lake", path.removeprefix("s3://lake/")]
                Marks(plans, former.plan_id).mark_done(chunk)
        return found

    ctx.attempt.replace_plan = replaced  # type: ignore[method-assign]
    result = expire_snapshots(ctx)
    assert late
    assert result.status == "EXPIRED"
    assert result.files_deleted == len(before - story.lake.uris())
    check(story, result)


def test_a_plan_that_is_reduced_after_some_of_its_files_are_deleted_has_only_the_others() -> None:
    for at in range(1, 200):
        story = Story()
        story.table.delete(story.of_old[1])
        before, store = story.lake.uris(), story.world.plans
        with suppress(Killed):
            small = dataclasses.replace(SMALL, lot_paths=1)
            expire_snapshots(story.world.context(story.table, settings=small, faults=Faults(kill_at=at)))
        store.faults = Faults()
        if story.world.head.read() and Marks(store, story.world.plan().plan_id).done():
            break
    gone, left = before - story.lake.uris(), [path for path in story.of_old if path in story.lake.uris()]
    assert gone
    assert left
    story.table.append(paths=left[:1])

    ended = until_it_ends(story)

    assert isinstance(ended, ExpiryResult)
    assert len(ended.plan_ids) == 2, "the plan was reduced"
    assert story.world.planned().isdisjoint(gone)
    assert ended.files_deleted == len(before - story.lake.uris())
    check(story, ended)


def test_a_plan_from_a_dry_run_is_only_ever_reduced() -> None:
    story = Story()
    dry = story.world.expire(story.table, dry_run=True, task_id="dry")
    approved = set(story.world.planned())
    tag_old(story)
    story.table.delete(story.table.live()[0])
    story.table.rewrite_manifests()
    before = story.lake.uris()

    story.world.head = PlanHead()
    result = expire_snapshots(story.world.context(story.table, execute_plan=dry.plan_ids[0]))

    gone = before - story.lake.uris()
    assert gone
    assert gone <= approved
    assert set(result.snapshot_ids) < set(dry.snapshot_ids)
    assert story.lake.readable() == {"t": set()}
    assert story.promised <= story.lake.uris()


def test_the_receipt_of_a_reduced_plan_is_beside_the_dry_runs_as_well() -> None:
    story = Story()
    dry = story.world.expire(story.table, dry_run=True, task_id="dry")
    story.world.head = PlanHead()
    result = story.expire({COMMIT: bring_file_back}, execute_plan=dry.plan_ids[0])
    assert len(result.plan_ids) == 2, "the plan was reduced"
    first, last = (story.world.plans.get(receipt_key(one)) for one in result.plan_ids)
    assert (result.status, result.plan_ids[0], first) == ("EXPIRED", dry.plan_ids[0], last)


@pytest.mark.parametrize("committed", [False, True])
def test_a_plan_that_is_lost_is_made_again_and_the_result_says_what_may_be_left(committed: bool) -> None:
    story = Story()
    ctx = story.world.context(story.table)
    story.world.catalogs[-1].lost.update({1} if committed else ())
    story.world.catalogs[-1].dropped.update(() if committed else {1})
    story.world.catalogs[-1].before[COMPARE_REFS] = story.world.plans.objects.clear
    before = story.lake.uris()
    if committed:
        ended: ExpiryResult | DelegationError = expire_snapshots(ctx)
    else:
        with pytest.raises(PolarisOutcomeUnknown):
            expire_snapshots(ctx)
        assert before - story.lake.uris() == set()
        ended = until_it_ends(story)

    assert isinstance(ended, ExpiryResult)
    assert "EARLIER_PLAN_LOST" in {finding.code for finding in ended.findings}
    assert ended.status == ("NOTHING" if committed else "EXPIRED")
    check(story, ended)


def test_what_is_brought_back_after_a_plan_is_lost_stays_although_the_first_plan_was_compared_with_it() -> None:
    """A manifest that the table named at the first comparison, gave up and names again is in the second plan."""
    story = Story()
    table = story.table
    kept = table.refs["main"]

    def lose_the_plan() -> None:
        table.delete(table.live()[0])
        story.world.plans.objects.clear()

    def bring_back() -> None:
        table.rollback(kept)
        table.append()
        story.promised |= story.lake.read_by(table.document, [table.refs["main"]])

    ctx = story.world.context(table)
    story.world.catalogs[-1].before |= {FIRST_DELETE: lose_the_plan, FIRST_DELETE + 2: bring_back}
    ended = expire_snapshots(ctx)

    assert (ended.status, ended.snapshot_ids) == ("EXPIRED", (kept,))
    assert {name: files for name, files in story.lake.readable().items() if files} == {}
    assert story.promised <= story.lake.uris()


def _calls() -> int:
    story, faults = Story(), Faults()
    expire_snapshots(story.world.context(story.table, faults=faults))
    return faults.calls


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_call_a_rerun_finishes_the_same_plan_with_one_commit(after: bool) -> None:
    undisturbed = Story()
    expire_snapshots(undisturbed.world.context(undisturbed.table))
    names = {uri.rpartition("/")[2] for uri in undisturbed.lake.uris() if not uri.endswith(".metadata.json")}
    for at in range(2 if after else 1, _calls() + 1, apart(5)):
        story = Story()
        with pytest.raises(Killed):
            expire_snapshots(story.world.context(story.table, faults=Faults(kill_at=at, after=after)))
        assert {name: files for name, files in story.lake.readable().items() if files} == {}

        ended = until_it_ends(story)

        assert isinstance(ended, ExpiryResult)
        assert ended.status == "EXPIRED", at
        assert story.world.commits() == 1, at
        check(story, ended)
        left = {uri.rpartition("/")[2] for uri in story.lake.uris() if not uri.endswith(".metadata.json")}
        assert left == names, at


KILLED_BESIDE: list[Event] = [append, tag_old, bring_file_back, clone]


@pytest.mark.parametrize("event", KILLED_BESIDE)
def test_killed_at_any_call_beside_an_event_nothing_is_lost(event: Event) -> None:
    for at in range(1 + KILLED_BESIDE.index(event), _calls() + 1, 3 * apart(3)):
        story = Story()
        ctx = story.world.context(story.table, faults=Faults(kill_at=at))
        with pytest.raises(Killed):
            expire_snapshots(ctx)
        deleting = story.of_old[0] not in story.lake.uris() or story.world.context(story.table).attempt.plan() == ()
        if event in UNTIL and deleting:
            continue
        event(story)
        check(story, until_it_ends(story))
