"""A file that was tagged and is needed again loses the tag at the next look, before the rule deletes it."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegation.removal.attempt import PlanHead
from delegation.removal.errors import PlanTampered
from delegation.removal.orphans.behavior import success
from delegation.removal.orphans.context import OrphanResult
from delegation.removal.orphans.errors import OperatorRoleRequired, no_role
from delegation.removal.orphans.index import load_plan
from delegation.removal.orphans.quarantine import UntagRun
from delegation.removal.orphans.released import RELEASED, tagged_at
from delegation.removal.orphans.run import remove_orphan_files
from delegation.storage.base import ObjectStoreUnavailable
from delegation.storage.memory import Faults, Killed, MemoryObjectStore
from tests.effort import apart, every
from tests.kit.stories.tables import StoryTable
from tests.paths import ROOT
from tests.unit.removal.orphans.quarantine.world import Lagoon, lagoon, restored_files
from tests.unit.removal.orphans.test_orders import before_deleting

TAKEN = "s3://lake/wh/t/data/e.parquet"
BEFORE_TAGS = "d1806937"
"""The last commit of the main branch that knows no tags."""


def tagged() -> tuple[Lagoon, StoryTable, set[str]]:
    """Return a table whose five orphan files are tagged."""
    world, table, planted = lagoon()
    assert world.sweep(table).files_quarantined == 5
    return world, table, planted


def released(result: OrphanResult) -> list[tuple[int, tuple[str, ...]]]:
    return [(one.count, one.sample) for one in result.findings if one.code == RELEASED]


def by_itself(_world: Lagoon, table: StoryTable) -> None:
    table.append(paths=[TAKEN])


def by_another(world: Lagoon, _table: StoryTable) -> None:
    world.table("far").append(paths=[TAKEN])


@pytest.mark.parametrize("take", [by_itself, by_another])
@pytest.mark.parametrize("more", [{"dry_run": True}, {}, {"quarantine": False}])
def test_a_tagged_file_that_a_table_takes_loses_the_tag_at_the_next_look(
    take: Callable[[Lagoon, StoryTable], None], more: dict[str, Any]
) -> None:
    world, table, planted = tagged()
    take(world, table)
    result = world.sweep(table, **more)
    assert released(result) == [(1, (TAKEN,))]
    assert TAKEN not in world.tagged()
    if more.get("quarantine", True):
        assert world.lifecycle() == planted - {TAKEN}
    assert not world.missing()
    assert "the tag from 1 file that tables need again" in success(result, None)[0]
    # Once it is done there is nothing to say.
    assert released(world.sweep(table, **more)) == []


@pytest.mark.parametrize("take", [by_itself, by_another])
def test_an_approval_compares_tagged_files_too(take: Callable[[Lagoon, StoryTable], None]) -> None:
    """The file is taken after the plan that is approved was made, and had the tag of an earlier quarantine."""
    world, table, planted = tagged()
    plan = world.sweep(table, dry_run=True)
    take(world, table)
    result = world.sweep(table, execute_plan=plan.plan_ids[0])
    assert released(result) == [(1, (TAKEN,))]
    assert world.receipt(result)["findings"][-1]["code"] == RELEASED
    assert world.lifecycle() == planted - {TAKEN}
    assert not world.missing()


def test_a_file_that_is_taken_between_the_plan_and_the_tags_of_one_run_loses_an_earlier_tag() -> None:
    world, table, planted = tagged()
    world.head = PlanHead()
    world.passes.renewed = 0
    ctx = world.context(table, task_id="second")
    before_deleting(world, lambda: table.append(paths=[TAKEN]))(ctx)
    result = remove_orphan_files(ctx)
    assert (result.files_quarantined, released(result)) == (4, [(1, (TAKEN,))])
    assert world.lifecycle() == planted - {TAKEN}
    assert not world.missing()


def test_without_a_comparison_the_rule_deletes_what_was_taken() -> None:
    """The limit that docs/limits.md has: nothing else knows of the tag."""
    world, table, _ = tagged()
    table.append(paths=[TAKEN])
    world.lifecycle()
    assert world.missing() == {TAKEN}


def test_a_file_of_an_earlier_quarantine_is_known_after_later_ones() -> None:
    world, table, _ = tagged()
    for _ in range(3):
        world.lake.pass_days(1)
        assert world.sweep(table).files_quarantined == 5
    table.append(paths=[TAKEN])
    assert released(world.sweep(table)) == [(1, (TAKEN,))]
    world.lifecycle()
    assert not world.missing()


def recreated(world: Lagoon) -> StoryTable:
    """Drop the table with its files, make another one at its location, and return that."""
    for path in world.unlist("t") - world.live():
        del world.lake.objects["lake", path.removeprefix("s3://lake/")]
    return world.table()


def quarantines(world: Lagoon, table: StoryTable, number: int, *, days: float = 4) -> None:
    """Tag a file of its own in each of so many sweeps."""
    for at in range(number):
        world.orphan(f"s3://lake/wh/t/data/later-{at}.parquet")
        world.lake.pass_days(days)
        assert world.sweep(table).files_quarantined >= 1


@pytest.mark.parametrize("more", [{"dry_run": True}, {}, {"quarantine": False}])
@pytest.mark.parametrize("later", every(2, [0, 21]))
def test_a_file_that_a_table_of_another_uuid_takes_loses_the_tag(more: dict[str, Any], later: int) -> None:
    """Tagged; dropped and made again at the location; perhaps many quarantines; taken by add_files; looked at."""
    world, table, _ = tagged()
    former = table.document["table-uuid"]
    again = recreated(world)
    assert again.document["table-uuid"] != former
    again.append(paths=[TAKEN])
    quarantines(world, again, later)
    result = world.sweep(again, **more)
    assert TAKEN not in world.tagged()
    if not later:
        assert released(result) == [(1, (TAKEN,))]
    world.lifecycle()
    assert not world.missing()


def test_a_file_that_newer_quarantines_do_not_have_loses_the_tag() -> None:
    """The table asks for a longer age since, so that the tagged file is in none of its 25 later plans."""
    world, table, _ = tagged()
    table.set(**{"delegation.orphan-files.older-than": "900d"})
    for at in range(25):
        path = world.orphan(f"s3://lake/wh/t/data/old-{at}.parquet")
        world.lake.modified["lake", path.removeprefix("s3://lake/")] = 1
        assert world.sweep(table).files_quarantined >= 1
    table.append(paths=[TAKEN])
    assert released(world.sweep(table)) == [(1, (TAKEN,))]
    world.lifecycle()
    assert not world.missing()


@pytest.mark.parametrize(
    ("then", "now"), [("s3://lake/wh/t/sub", "s3://lake/wh/t"), ("s3://lake/wh/t", "s3://lake/wh/t/data")]
)
def test_a_file_that_a_table_above_or_below_the_former_location_takes_loses_the_tag(then: str, now: str) -> None:
    world = Lagoon()
    former = moved(world.table(), then)
    taken = world.orphan("s3://lake/wh/t/data/sub/e.parquet" if now.endswith("data") else f"{then}/data/e.parquet")
    world.lake.pass_days(4)
    world.role = f"{then}/"
    world.sweep(former)
    assert taken in world.tagged()
    for path in world.unlist("t"):
        del world.lake.objects["lake", path.removeprefix("s3://lake/")]
    table = moved(world.table(), now)
    table.append(paths=[taken])
    world.role = f"{now}/"
    assert released(world.sweep(table)) == [(1, (taken,))]
    assert taken not in world.lifecycle()
    assert not world.missing()


def moved(table: StoryTable, folder: str) -> StoryTable:
    """Move a table, whose later files are there."""
    table.folder = folder
    table.apply({"action": "set-location", "location": folder})
    return table


def test_the_tag_is_restored_by_location_whatever_table_it_was() -> None:
    world, _, planted = tagged()
    again = recreated(world)
    quarantines(world, again, 1)
    assert len(world.tagged()) == 6
    world.context(again)
    plans = [one.id for one in tagged_at(world.plans, "s3://lake/wh").values()]
    assert len(plans) == 2
    below = "s3://lake/wh/t/data/p=1"
    run = UntagRun(world.store, world.plans, plans, below, by_location=True)
    assert restored_files(run.run()) == {"restored": 1}
    assert world.tagged() & planted == {one for one in planted if not one.startswith(below)}
    found = UntagRun(world.store, world.plans, plans, "s3://lake/wh/t", by_location=True).run()
    assert (restored_files(found), world.tagged()) == ({"restored": 5, "present": 1}, set())


def test_quarantines_whose_files_are_gone_are_read_no_more() -> None:
    world, table, _ = tagged()
    world.lifecycle()
    for at in range(60):
        quarantines(world, table, 1)
        world.lifecycle()
        open_plans = len(tagged_at(world.plans, "s3://lake/wh/t"))
        assert open_plans <= 22, at
    assert not world.missing()


def test_a_quarantine_with_a_file_that_still_has_the_tag_is_never_left_out() -> None:
    """Neither the age, nor hidden names, nor a place of others hides a file that is taken much later."""
    world, table, planted = tagged()
    table.set(**{"delegation.orphan-files.older-than": "900d"})
    for at in range(30):
        path = world.orphan(f"s3://lake/wh/t/data/old-{at}.parquet")
        world.lake.modified["lake", path.removeprefix("s3://lake/")] = 1
        world.sweep(table)
        for gone in world.tagged() - planted:
            del world.lake.objects["lake", gone.removeprefix("s3://lake/")]
    assert len(tagged_at(world.plans, "s3://lake/wh/t")) < 25
    table.append(paths=[TAKEN])
    assert released(world.sweep(table)) == [(1, (TAKEN,))]
    world.lifecycle()
    assert not world.missing()


def test_a_file_that_was_written_again_since_has_no_tag_to_lose() -> None:
    world, table, _ = tagged()
    world.lake.pass_days(1)
    world.lake.put(TAKEN, b"new")
    table.append(paths=[TAKEN])
    assert released(world.sweep(table)) == []


def test_a_tag_that_an_attempt_set_before_it_died_is_known() -> None:
    kills = 0
    for at in range(1, 400):
        world, table, planted = lagoon()
        world.head = PlanHead()
        try:
            remove_orphan_files(world.context(table, faults=Faults(kill_at=at, after=True)))
        except Killed:
            world.context(table)
            before = world.tagged()
            if not before:
                continue
            kills += 1
            taken = min(before)
            table.append(paths=[taken])
            result = world.sweep(table, dry_run=True)
            assert released(result) == [(1, (taken,))], at
            assert world.lifecycle() <= planted - {taken}
            assert not world.missing(), at
            continue
        break
    assert kills > 5


def test_a_comparison_that_dies_anywhere_leaves_the_rest_to_the_next_one() -> None:
    kills = 0
    for at in range(1, 400, apart(5)):
        world, table, planted = tagged()
        table.append(paths=[TAKEN])
        world.head = PlanHead()
        try:
            remove_orphan_files(world.context(table, faults=Faults(kill_at=at), dry_run=True, task_id="look"))
        except Killed:
            kills += 1
            world.head = PlanHead()
            remove_orphan_files(world.context(table, dry_run=True, task_id="again"))
            assert world.lifecycle() == planted - {TAKEN}, at
            assert not world.missing(), at
            continue
        break
    assert kills > 20 / apart(5)


@pytest.mark.parametrize("damaged", ["record", "plan", "chunk"])
def test_a_damaged_record_of_a_quarantine_keeps_no_tag_on_the_needed_files_of_the_others(damaged: str) -> None:
    world, table, _ = tagged()
    more = world.orphan("s3://lake/wh/t/data/later.parquet")
    world.lake.pass_days(4)
    assert world.sweep(table).files_quarantined == 6
    (first, segment), *others = tagged_at(world.plans, "s3://lake/wh/t/").items()
    assert others
    key = {"record": first, "plan": f"{segment.id}/index.json"}.get(damaged)
    if key is None:
        # Its index names its chunks.
        chunk = load_plan(world.plans, segment).chunks[0]
        stored = world.plans.keys(f"{segment.id}/")
        key = next(one for one in stored if chunk.name in one and "/done/" not in one)
    world.plans.put(key, b"{")
    table.append(paths=[more])
    with pytest.raises(PlanTampered):
        world.sweep(table, dry_run=True)
    assert more not in world.tagged()


def test_a_store_that_refuses_one_file_keeps_no_tag_on_the_other_needed_files() -> None:
    world, table, planted = tagged()
    table.append(paths=sorted(planted))
    refused, untag = min(planted), MemoryObjectStore.untag

    def refuses(store: MemoryObjectStore, bucket: str, one: Any, **more: Any) -> Any:
        if refused.endswith(one.key):
            raise ObjectStoreUnavailable(f"{refused} cannot be reached")
        return untag(store, bucket, one, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryObjectStore, "untag", refuses)
        with pytest.raises(ObjectStoreUnavailable):
            world.sweep(table, dry_run=True)
    assert world.tagged() == {refused}


def test_without_the_role_a_needed_file_with_the_tag_fails_the_removal() -> None:
    world, table, _ = tagged()
    without = replace(world.context(table, dry_run=True, quarantine=False, task_id="none"), tags=no_role)
    assert released(remove_orphan_files(without)) == []
    table.append(paths=[TAKEN])
    world.head = PlanHead()
    ctx = replace(world.context(table, dry_run=True, quarantine=False, task_id="lost"), tags=no_role)
    with pytest.raises(OperatorRoleRequired, match=r"removing the quarantine tag .*e\.parquet, which is needed now"):
        remove_orphan_files(ctx)


_FORMER = """
import json, sys
from delegation.operations.orphans.behavior.options import options_of
from delegation.operations.orphans.index import load_plan
from delegation.storage.memory import MemoryPlanStore
from delegation.worksets.attempt import PlanSegment
given = json.load(sys.stdin)
plans = MemoryPlanStore()
plans.put(given["id"] + "/index.json", given["index"].encode())
found = []
for act in (lambda: load_plan(plans, PlanSegment(given["id"], given["sha256"])), lambda: options_of(given["asked"])):
    try:
        act()
        found.append("understood")
    except Exception as error:
        found.append(error.code)
print(json.dumps(found))
"""


@pytest.mark.parametrize("quarantine", [True, False])
def test_the_former_release_refuses_a_plan_of_tags_instead_of_deleting_its_files(
    tmp_path: Path, quarantine: bool
) -> None:
    """Its own code reads the plan as it is stored; it understands a plan to delete."""
    archive = subprocess.run(["git", "archive", BEFORE_TAGS, "functions"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this clone's history has no commit {BEFORE_TAGS}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(tmp_path, filter="data")
    world, table, _ = lagoon()
    world.sweep(table, dry_run=True, quarantine=quarantine)
    [segment] = world.head.read()
    given = {
        "id": segment.id,
        "sha256": segment.sha256,
        "index": world.plans.get(f"{segment.id}/index.json").decode(),
        "asked": {"quarantine": "tag"} if quarantine else {},
    }
    done = subprocess.run(
        [sys.executable, "-c", _FORMER],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "functions")},
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    refused = ["PLAN_TAMPERED", "OPERATOR_ROLE_REQUIRED"]
    assert json.loads(done.stdout) == (refused if quarantine else ["understood", "understood"])
