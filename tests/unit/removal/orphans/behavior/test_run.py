"""Removals of orphan files as tasks: who commits, registers, approves or dies when, and what is deleted."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from delegation.identifiers import TableIdentifier
from delegation.polaris.answers import PolarisForbidden
from delegation.polaris.model import GenericTable, LoadedTable
from delegation.references.model import CatalogPass
from delegation.removal.orphans.claims import claims_of
from delegation.removal.orphans.details import OrphanDetails
from delegation.removal.orphans.errors import places_unknown
from delegation.removal.orphans.place import Place
from delegation.removal.orphans.requests import OrphanLimits, TableOrphans
from delegation.removal.orphans.task_type import ORPHANS, POLICY, TASK_TYPE
from delegation.storage.memory import Faults, Killed
from delegation.tasks.life.lanes import Lane, Traits
from delegation.tasks.life.model import Status
from delegation.wire.requests import TableState
from tests.effort import apart
from tests.kit.lakes.lake import LakeSource, busy_table, filled, rows
from tests.kit.worlds.service import REALM
from tests.kit.worlds.sweeping import AT_ONCE, SweepingWorld


@pytest.fixture
def world() -> SweepingWorld:
    return filled(SweepingWorld(), "t")


@pytest.fixture
def careful() -> SweepingWorld:
    """A service with the default limits: a person looks at the first plan and at large ones."""
    return filled(SweepingWorld({}), "t")


def test_orphan_files_are_removed_and_nothing_that_the_table_needs(world: SweepingWorld) -> None:
    planted = world.plant("data/a.parquet", "metadata/b.avro", "c")
    young, before = world.plant("data/young.parquet", days=2), world.lake.needed("t", named=True)

    task = world.ask()

    assert task.status is Status.SUCCESS, task.result_summary
    assert not planted & world.files()
    assert young | before <= world.files()
    details = OrphanDetails.of(task)
    assert details.files_deleted == len(world.planned(task)) >= 3
    assert task.result_summary.startswith(f"deleted {details.files_deleted} orphan files, ")
    receipt = world.receipt(task)
    assert (receipt["status"], receipt["requested_by"]["client_id"]) == ("SWEPT", "polaris")
    (checked,) = receipt["references"]
    assert checked["pass"] > checked["moment"]


def test_orphan_files_are_tagged_with_the_operators_role_and_kept() -> None:
    arn = "arn:aws:iam::123456789012:role/lake"
    world = filled(SweepingWorld({**AT_ONCE, "delegation.orphan-files.roles": f"lake={arn}"}), "t")
    planted, opened = world.plant("data/a.parquet", "metadata/b.avro"), []

    def tags(*named: Any) -> Any:
        opened.append(named[:2])
        return world.objects

    world.deploy(orphans=replace(world.orphans, tags=tags))
    before = world.files()

    task = world.ask(quarantine="tag")

    assert task.status is Status.SUCCESS, task.result_summary
    assert task.result_summary.startswith("tagged "), task.result_summary
    assert "(delegation-quarantine=orphan)" in task.result_summary
    assert world.files() == before
    found = {f"s3://lake/{one.key}" for (_, one), held in world.objects.tags.items() if held}
    assert planted <= found
    assert not found & world.lake.needed("t", named=True)
    assert set(opened) == {(arn, "s3://lake/wh/t/")}
    details = OrphanDetails.of(task)
    assert (details.files_quarantined, details.files_deleted) == (len(found), 0)
    receipt = world.receipt(task)
    assert (receipt["quarantine"], receipt["files_quarantined"]) == ("delegation-quarantine=orphan", len(found))


def test_the_removal_of_an_upkeep_pass_takes_the_tag_that_a_former_table_left() -> None:
    """Tagged; the table dropped and made again at its location; taken by add_files; then a policy's own task."""
    arn = "arn:aws:iam::123456789012:role/lake"
    world = filled(SweepingWorld({**AT_ONCE, "delegation.orphan-files.roles": f"lake={arn}"}), "t")
    world.deploy(orphans=replace(world.orphans, tags=lambda _role, _location, _table: world.objects))
    [part, *_] = [one for one in world.lake.below("s3://lake/wh/t/data/") if "/part=" in one]
    taken = world.plant("data/taken.parquet").pop()
    world.lake.objects["lake", "wh/t/data/taken.parquet"] = world.lake.objects["lake", part.removeprefix("s3://lake/")]
    first = world.ask(quarantine="tag")
    assert OrphanDetails.of(first).files_quarantined, first.result_summary
    tagged = {f"s3://lake/{one.key}" for (_, one), held in world.objects.tags.items() if held}
    assert taken in tagged

    former = world.lake.metadata("t")["table-uuid"]
    del world.lake.pointers["t"]
    busy_table(world.lake, "t")
    assert world.lake.metadata("t")["table-uuid"] != former
    world.lake.table("t").add_files([taken], check_duplicate_files=False)
    removal = TableOrphans(
        realm=REALM,
        identifier=TableIdentifier("cat", ("ns",), "t"),
        table=TableState.of(LakeSource(world.lake, "t", Faults()).load()),
        properties={POLICY: "cat.gov.sweep"},
    )
    made = world.tasks.submission.first(
        task_id=removal.task_id, task_type=removal.task_type, payload=removal.to_payload()
    )
    world.tasks.dispatching.dispatch(world.tasks.submission.create(made)[0].task_id)
    world.drive()
    task = world.tasks.reads.get(removal.task_id)
    assert "removed the tag from 1 file" in str(task.result_summary)
    left = {f"s3://lake/{one.key}" for (_, one), held in world.objects.tags.items() if held}
    assert taken not in left


def test_without_a_role_for_the_bucket_a_quarantine_that_was_accepted_ends_and_changes_nothing() -> None:
    """The operator took the role away after the request was accepted."""
    arn = "arn:aws:iam::123456789012:role/lake"
    world = filled(SweepingWorld({**AT_ONCE, "delegation.orphan-files.roles": f"lake={arn}"}), "t")
    world.plant("data/a.parquet")
    before = world.files()
    world.deploy(orphans=replace(world.orphans, limits=OrphanLimits.from_properties(AT_ONCE)))
    task = world.ask(quarantine="tag")
    assert (task.status, task.error_code) == (Status.FAILURE, "OPERATOR_ROLE_REQUIRED")
    assert world.files() == before


def test_a_table_that_took_a_file_after_the_last_pass_keeps_it(world: SweepingWorld) -> None:
    busy_table(world.other, "far", location="s3://other/far")
    planted = world.plant("data/gone.parquet")
    [taken, *_] = [one for one in world.lake.below("s3://lake/wh/t/data/") if "/part=" in one]
    copy = world.plant("data/taken.parquet").pop()
    world.lake.objects["lake", "wh/t/data/taken.parquet"] = world.lake.objects["lake", taken.removeprefix("s3://lake/")]
    assert world.planned(world.ask(dry_run="true")) >= planted | {copy}
    world.other.table("far").add_files([copy], check_duplicate_files=False)
    task = world.ask()
    assert task.status is Status.SUCCESS, task.result_summary
    assert copy in world.files()
    assert not planted & world.files()


def test_an_approval_that_is_sent_twice_is_one(careful: SweepingWorld) -> None:
    world = careful
    world.plant("data/a.parquet")
    plan = world.waiting(world.ask())
    world.approve(plan)
    done = world.ask(plan=plan)
    again = world.ask(plan=plan)
    assert (again.task_id, again.version, again.result_summary) == (done.task_id, done.version, done.result_summary)


def test_a_plan_that_waits_outlasts_an_approval_that_failed_and_a_later_plan_replaces_it(
    careful: SweepingWorld,
) -> None:
    world, planted = careful, careful.plant("data/a.parquet")
    plan = world.waiting(world.ask())
    world.approve(plan)
    world.places.append(Place("view", "cat.ns.v", "s3://lake/wh/t/v"))
    failed = world.ask(plan=plan)
    assert (failed.status, failed.error_code) == (Status.FAILURE, "LOCATION_SHARED")
    assert world.waiting(failed) == plan
    world.places.clear()
    none = OrphanLimits.from_properties({"delegation.orphan-files.max-files": "0"})
    world.deploy({}, orphans=replace(world.orphans, limits=none))
    later = world.ask(prefix_mismatch_mode="ignore")
    assert OrphanDetails.of(later).waits == "first-run"
    assert world.waiting(later) != plan
    former = world.ask(plan=plan)
    assert (former.status, former.error_code) == (Status.FAILURE, "PLAN_NOT_FOUND")
    assert planted <= world.files()
    world.approve(world.waiting(later))
    assert world.ask(plan=world.waiting(later)).status is Status.SUCCESS
    assert not planted & world.files()


@pytest.mark.parametrize("loads", [0, 1, 2, 3])
def test_a_removal_whose_policy_is_withdrawn_stops_and_says_so(world: SweepingWorld, loads: int) -> None:
    """The policy is read with the table: before the listing, the plan and the first delete, and between deletes."""
    planted = world.plant(*(f"data/{number}.parquet" for number in range(9)))
    asked: list[str] = []
    policies = ["cat.gov.sweep", None]

    def permissions(_orphans: TableOrphans) -> Callable[[LoadedTable], str | None]:
        policy = policies[0]

        def permitted(_table: LoadedTable) -> str | None:
            asked.append(str(policy))
            return None if policy is None or len(asked) <= loads else f"the policy {policy} asks for nothing any more"

        return permitted

    world.deploy(orphans=replace(world.orphans, permissions=permissions))
    task = world.ask()
    assert task.status is Status.SUCCESS, task.result_summary
    assert "the policy cat.gov.sweep asks for nothing any more" in task.result_summary
    assert [one.code for one in OrphanDetails.of(task).findings] == ["POLICY_WITHDRAWN"]
    assert planted <= world.files()
    # A caller's own removal continues.
    policies.pop(0)
    assert world.ask().status is Status.SUCCESS
    assert not planted & world.files()


def test_a_plan_of_another_operation_is_not_found(careful: SweepingWorld) -> None:
    world = careful
    dry = world.purge("t", **{"dry-run": "true"})
    [segment] = OrphanDetails.of(dry).plan_segments
    task = world.ask(plan=segment.id)
    assert (task.status, task.error_code) == (Status.FAILURE, "PLAN_NOT_FOUND")


def test_without_an_index_nothing_is_removed(world: SweepingWorld) -> None:
    planted = world.plant("data/a.parquet")
    world.deploy({}, orphans=replace(world.orphans, search=replace(world.behavior, references=None).search))
    task = world.ask()
    assert (task.status, task.error_code) == (Status.FAILURE, "REFERENCES_NOT_INDEXED")
    assert planted <= world.files()


def test_a_table_that_cannot_be_read_holds_it_back_until_it_can(world: SweepingWorld) -> None:
    world.other.create("unread", location="s3://other/unread").append(rows(1))
    world.listing.not_vended.add("unread")
    world.listing.broken["unread"] = PolarisForbidden("no", status=403)
    planted = world.plant("data/a.parquet")
    task = world.ask()
    assert (task.status, task.error_code) == (Status.RETRY_SCHEDULED, "NEIGHBOUR_UNREADABLE")
    assert planted <= world.files()
    world.listing.broken.clear()
    world.listing.not_vended.clear()
    # The recurring pass over the catalog finds it readable.
    world.later(2)
    world.later(1)
    assert world.tasks.reads.get(task.task_id).status is Status.SUCCESS
    assert not planted & world.files()


def test_an_unfinished_purge_claims_what_it_plans_and_the_location_of_its_table(world: SweepingWorld) -> None:
    """A former table at the location is purged; its files are for that task, which may keep some for others."""
    busy_table(world.lake, "former")
    world.lake.rewrite_metadata("former", {"location": "s3://lake/wh/t"})
    submitted = world.submit(world.body("former"))
    del world.lake.pointers["former"]
    world.queue.sent.clear()
    [claim] = claims_of(world.tasks, ["cat"], lambda: None)
    assert (claim.location, claim.segment) == ("s3://lake/wh/t", None)
    assert submitted.task_id in claim.what
    planted = world.plant("data/a.parquet")
    task = world.ask()
    assert (task.status, task.error_code) == (Status.FAILURE, "LOCATION_SHARED")
    assert submitted.task_id in (task.result_extended or "") + task.result_summary
    assert planted <= world.files()


@pytest.mark.parametrize("missing", ["the namespaces in cat", "the views in cat.ns"])
def test_a_privilege_that_is_missing_is_named_before_anything_is_listed_or_waited_for(
    world: SweepingWorld, missing: str
) -> None:
    now, refused = world.clock(), PolarisForbidden("the principal needs VIEW_LIST", status=403)
    held = CatalogPass("cat", owner="other", owned_until=now + timedelta(days=9), began_at=now, checked=7)
    world.index.write_pass(world.index.pass_of("cat"), held)

    def places(_catalogs: object, _before: object) -> Iterator[Place]:
        if "views" in missing:
            yield Place("namespace", "cat.ns", "s3://lake/wh")
        raise places_unknown(missing, refused)

    world.deploy(orphans=replace(world.orphans, places=places))
    task = world.ask()
    assert (task.status, task.error_code) == (Status.FAILURE, "PLACES_UNKNOWN")
    assert "needs VIEW_LIST" in task.result_summary
    assert OrphanDetails.of(task).plan_segments == ()


def test_a_removal_does_not_begin_while_the_table_is_purged(world: SweepingWorld) -> None:
    purge = world.submit(world.body("t")).task_id
    world.queue.sent.clear()
    planted, calls = world.plant("data/a.parquet"), list(world.lake.uris())
    task = world.ask()
    assert (task.status, task.error_code) == (Status.FAILURE, "TABLE_IS_PURGED")
    assert str(purge) in task.result_summary
    assert planted <= world.files()
    assert calls == list(world.lake.uris())
    world.tasks.operators.cancel(str(purge))
    assert world.ask().status is Status.SUCCESS
    assert not planted & world.files()


def test_finished_tasks_and_other_removals_claim_nothing(world: SweepingWorld) -> None:
    busy_table(world.lake, "u")
    world.purge("u", **{"dry-run": "true"})
    world.ask()
    world.submit(world.removal("u"))
    assert [one for one in claims_of(world.tasks, ["cat"], lambda: None) if one.segment] == []
    assert {one.location for one in claims_of(world.tasks, ["cat"], lambda: None)} <= {""}


def test_it_runs_in_the_background(world: SweepingWorld) -> None:
    task = world.tasks.reads.get(world.submit(world.removal()).task_id)
    traits = ORPHANS.traits(task.task_payload)
    assert traits == Traits(tenant="cat", bucket="lake", is_background=True)
    assert Lane.of("TABLE_PURGE", Traits(priority=0)).text < Lane.of(TASK_TYPE, traits).text


def killed(at: int, *, after: bool) -> tuple[SweepingWorld, bool]:
    """Have a removal killed at a call of a store, the catalog or the task store; return whether it was."""
    world = filled(SweepingWorld(AT_ONCE), "t")
    world.plant(*(f"data/p={number}/a.parquet" for number in range(4)), "b")
    world.clock.advance(timedelta(hours=1))
    world.submit(world.removal())
    faults = Faults(kill_at=at, after=after)
    world.faults = world.objects.faults = world.plans.faults = faults

    def call(name: str) -> None:
        with faults.call(name):
            pass

    world.listing.each_load = lambda: call("catalog")
    world.store.fault = lambda point: call(point) if point in ("before apply", "after apply") else None
    try:
        world.drive()
        was_killed = False
    except Killed:
        was_killed = True
    world.faults = world.objects.faults = world.plans.faults = Faults()
    world.listing.each_load = lambda: None
    world.store.fault = lambda _point: None
    return world, was_killed


@pytest.mark.parametrize("after", [False, True])
def test_a_removal_can_be_killed_at_every_call(after: bool) -> None:
    """Whatever call was the last of the process: the sweeper finds the task lost, and the next attempt finishes it.

    Every call of the steps themselves is a kill of `test_orders`; here every 18th is, with what is between them,
    and every second one in a thorough run.
    """
    kills, needed = 0, frozenset[str]()
    for at in range(2 if after else 1, 600, 2 * apart(9)):
        world, was_killed = killed(at, after=after)
        needed = needed or frozenset(world.lake.needed("t", named=True))
        world.later(1, times=3)
        [task] = [one for one in world.store.heads().tasks if one.task_type == TASK_TYPE]
        assert task.status is Status.SUCCESS, (at, task.result_summary)
        assert needed <= world.files(), at
        assert not [uri for uri in world.files() if "/data/p=" in uri], at
        kills += was_killed
        if not was_killed:
            break
    assert kills > 2


def generic(world: SweepingWorld, location: str | None) -> None:
    """Have the catalog list a table of another format at a location."""

    def tables(catalog: str, namespace: tuple[str, ...], before: Callable[[], None]) -> list[GenericTable]:
        before()
        return [GenericTable(TableIdentifier(catalog, namespace, "delta"), location)] if namespace == ("other",) else []

    world.become(replace(world.behavior, generic_tables=tables))
    world.deploy(orphans=replace(world.orphans, search=world.behavior.search))


@pytest.mark.parametrize("location", [None, "s3://lake/wh/t#delta", ""])
def test_a_table_of_another_format_whose_place_is_not_known_holds_the_removal_back(
    world: SweepingWorld, location: str | None
) -> None:
    planted = world.plant("data/a.parquet")
    generic(world, location)
    before = world.files()
    task = world.ask()
    assert (task.status, task.error_code) == (Status.FAILURE, "PLACES_UNKNOWN")
    assert "cat.other.delta" in task.result_summary
    assert world.files() == before
    assert world.purge("t").status is Status.SUCCESS
    generic(world, "gs://elsewhere/delta")
    busy_table(world.lake, "t")
    world.plant("data/a.parquet")
    assert world.ask().status is Status.SUCCESS
    assert not planted & world.files()


def test_a_removal_stops_at_a_missing_list_of_an_old_snapshot_and_advises_to_expire_it(world: SweepingWorld) -> None:
    planted = world.plant("data/a.parquet")
    lists = [one.manifest_list for one in world.lake.table("t").snapshots()]
    world.lake.io.delete(lists[0])

    task = world.ask()

    assert (task.status, task.error_code) == (Status.FAILURE, "MANIFEST_MISSING")
    assert "expire the snapshots that need it" in task.result_summary
    assert "purge" not in task.result_summary
    assert planted <= world.files()
