"""A plan that is lost after the first delete is made again; one that was altered is refused (issue 24, line 9)."""

import contextlib
import dataclasses
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from delegation.iceberg.errors import ManifestMissing
from delegation.iceberg.paths import RANK
from delegation.removal import index
from delegation.removal.chunks import DeleteStep, step_of
from delegation.removal.errors import PlanTampered
from delegation.removal.purge.context import PurgeContext, PurgeResult
from delegation.removal.purge.errors import PurgeError
from delegation.removal.purge.requests import PurgeOptions
from delegation.removal.purge.run import purge_table
from delegation.storage.memory import Faults, Killed
from tests.effort import apart
from tests.kit.errors import coded
from tests.kit.lakes.lake import Lake, PurgedTables, busy_table, rows

TABLE = "s3://lake/wh/doomed/"
FORMER_LOCATION = "s3://lake/former/doomed/"
STRICT = PurgeOptions(outside="refuse")


@pytest.fixture(scope="module")
def world() -> Lake:
    """A table that was moved: its older files are at a location that only a former metadata file names."""
    lake = Lake()
    table = lake.create("doomed", location=FORMER_LOCATION.rstrip("/"))
    table.append(rows(1, 2))
    lake.table("doomed").append(rows(3, part="b"))
    moved: dict[str, Any] = {"write.metadata.path": f"{TABLE}metadata"}
    lake.table("doomed").transaction().set_properties(**moved).commit_transaction()
    lake.rewrite_metadata("doomed", {"location": TABLE.rstrip("/")})
    lake.table("doomed").append(rows(4, part="c"))
    busy_table(lake, "sibling")
    return lake


class Covered(PurgedTables):
    """A bench whose credentials cover the former location too."""

    def context(self, name: str, **more: Any) -> PurgeContext:
        return super().context(name, prefixes=("s3://lake/",), **more)


def fresh(world: Lake) -> PurgedTables:
    bench = Covered(lake=world.copy())
    bench.uuid("doomed")
    return bench


def sibling(world: Lake) -> set[str]:
    return world.below("s3://lake/wh/sibling/")


def killed(bench: PurgedTables, number: int) -> bool:
    """Kill a purge after a call; return whether it has a published plan and did not end."""
    try:
        purge_table(bench.context("doomed", options=STRICT, faults=Faults(kill_at=number, after=True)))
    except Killed:
        return bool(bench.head.read())
    return False


def calls_of_a_purge(world: Lake) -> Faults:
    faults = Faults()
    purge_table(fresh(world).context("doomed", options=STRICT, faults=faults))
    return faults


def lose_all(objects: dict[str, bytes]) -> None:
    objects.clear()


def lose_index(objects: dict[str, bytes]) -> None:
    for key in [key for key in objects if key.endswith("index.json")]:
        del objects[key]


def lose_chunks(objects: dict[str, bytes]) -> None:
    for key in [key for key in objects if key.endswith(".gz") and "/done/" not in key]:
        del objects[key]


def lose_lists(objects: dict[str, bytes]) -> None:
    for key in [key for key in objects if "/META-lists-" in key and "/done/" not in key]:
        del objects[key]


@pytest.mark.parametrize("lose", [lose_all, lose_index, lose_chunks, lose_lists])
def test_killed_at_every_call_the_plan_lost_and_run_again(world: Lake, lose: Callable[[Any], None]) -> None:
    """At every third call, and at each in a thorough run."""
    total = calls_of_a_purge(world).calls
    replanned = 0
    for number in range(1, total + 1, apart(3)):
        bench = fresh(world)
        if not killed(bench, number):
            continue
        lose(bench.plans.objects)
        if bench.lake.pointers["doomed"] not in set(bench.lake.uris()) and lose is not lose_chunks:
            continue  # the metadata file is deleted: test_a_plan_lost_after_the_metadata_file
        result = purge_table(bench.context("doomed", options=STRICT))
        assert set(bench.lake.uris()) == sibling(world), f"killed at call {number}"
        replanned += "REPLANNED" in {finding.code for finding in result.findings}
    assert replanned > total // 4 // apart(3)


def test_the_new_plan_is_lost_again(world: Lake) -> None:
    first = calls_of_a_purge(world).names
    at = first.index("steps") + 3
    for second in range(1, 80, apart(5)):
        bench = fresh(world)
        assert killed(bench, at)
        lose_all(bench.plans.objects)
        killed(bench, second)
        lose_all(bench.plans.objects)
        if bench.lake.pointers["doomed"] in set(bench.lake.uris()):
            purge_table(bench.context("doomed", options=STRICT))
        assert set(bench.lake.uris()) == sibling(world), f"killed at call {second} of the second attempt"


def test_a_plan_lost_after_the_metadata_file_ends_with_what_to_do(world: Lake) -> None:
    bench = fresh(world)
    names = calls_of_a_purge(world).names
    assert killed(bench, len(names) - names[::-1].index("delete"))
    assert set(bench.lake.uris()) == sibling(world)
    versions = dict(bench.plans.objects)
    lose_all(bench.plans.objects)
    with pytest.raises(PurgeError, check=coded("FILES_LEFT_UNKNOWN")) as unknown:
        purge_table(bench.context("doomed", options=STRICT))
    # The purge itself deleted the metadata file, and what else it deleted is not listed anywhere any more.
    text = str(unknown.value)
    assert "another process" not in text
    below = text.partition("may remain below ")[2].partition(". Either ")[0].split(", ")
    assert {FORMER_LOCATION, TABLE} <= set(below)
    assert "these steps are deleted: DATA, META. Other files may remain" in text
    assert bench.lake.pointers["doomed"] in text
    bench.plans.objects.update(versions)
    assert purge_table(bench.context("doomed", options=STRICT)).status == "PURGED"


def test_a_plan_lost_with_the_metadata_file_while_files_are_left_says_below_which_locations(world: Lake) -> None:
    bench = fresh(world)
    deleting(bench, DeleteStep.META)
    lose_all(bench.plans.objects)
    bench.lake.io.delete(bench.lake.pointers["doomed"])
    left = bench.lake.below(TABLE)
    assert left
    for _ in range(2):
        with pytest.raises(PurgeError, check=coded("FILES_LEFT_UNKNOWN")) as unknown:
            purge_table(bench.context("doomed", options=STRICT))
        text = str(unknown.value)
        assert "restore the plan's objects" in text
        assert "these steps are deleted: DATA. Other files may remain" in text
        below = text.partition("may remain below ")[2].partition(". Either ")[0].split(", ")
        assert {FORMER_LOCATION, TABLE} <= set(below)
    assert bench.lake.below(TABLE) == left


def test_only_the_index_of_a_plan_is_lost_after_the_metadata_file(world: Lake) -> None:
    bench = fresh(world)
    names = calls_of_a_purge(world).names
    assert killed(bench, len(names) - names[::-1].index("delete"))
    lose_index(bench.plans.objects)
    deleted = "these steps are deleted: DATA, META, LISTS. Other files may remain"
    with pytest.raises(PurgeError, check=coded("FILES_LEFT_UNKNOWN"), match=deleted):
        purge_table(bench.context("doomed", options=STRICT))


def test_a_plan_and_a_metadata_file_that_are_lost_before_anything_was_deleted(world: Lake) -> None:
    bench = fresh(world)
    deleting(bench, DeleteStep.DATA)
    lose_all(bench.plans.objects)
    bench.lake.io.delete(bench.lake.pointers["doomed"])
    with pytest.raises(PurgeError, check=coded("FILES_LEFT_UNKNOWN"), match="No step is recorded as done") as unknown:
        purge_table(bench.context("doomed", options=STRICT))
    assert "whose metadata file was" not in str(unknown.value)


def deleting(bench: PurgedTables, step: DeleteStep, options: PurgeOptions = STRICT) -> PurgeContext:
    """Kill a purge at the first delete of a step; return the context of the next attempt."""
    paths: list[str] = []
    ctx = bench.context("doomed", options=options)
    usual = ctx.store.delete

    def delete(bucket: str, keys: Any) -> Any:
        found = {f"s3://{bucket}/{key}" for key in keys}
        if any(path in found for path in paths):
            raise Killed("delete")
        return usual(bucket, keys)

    ctx.store.delete = delete  # type: ignore[method-assign]
    publish = ctx.attempt.publish

    def published(segment: Any, *, files_planned: int) -> Any:
        for key, data in bench.plans.objects.items():
            if key.endswith(".jsonl.gz") and "KEPT" not in key:
                records = map(json.loads, gzip.decompress(data).decode().splitlines())
                paths.extend(one["path"] for one in records if step_of(RANK[one["type"]]) is step)
        return publish(segment, files_planned=files_planned)

    ctx.attempt.publish = published  # type: ignore[method-assign]
    with pytest.raises(Killed):
        purge_table(ctx)
    return bench.context("doomed", options=options)


def test_the_manifest_lists_are_deleted_after_what_they_name(world: Lake) -> None:
    bench = fresh(world)
    ctx = bench.context("doomed")
    purge_table(ctx)
    deleted = ctx.store.deleted  # type: ignore[attr-defined]
    kinds = ["list" if "/snap-" in path else "manifest" if path.endswith("-m0.avro") else "other" for path in deleted]
    lists = [position for position, kind in enumerate(kinds) if kind == "list"]
    assert len(lists) == 3
    assert max(position for position, kind in enumerate(kinds) if kind == "manifest") < min(lists)
    assert deleted[max(lists) + 1 :] == [bench.lake.pointers["doomed"]]


def test_a_lost_manifest_is_no_excuse_before_the_data_files_are_deleted(world: Lake) -> None:
    bench = fresh(world)
    ctx = deleting(bench, DeleteStep.DATA)
    lose_all(bench.plans.objects)
    gone = min(uri for uri in bench.lake.uris() if uri.endswith("-m0.avro") and "sibling" not in uri)
    bucket, _, key = gone.removeprefix("s3://").partition("/")
    del bench.lake.objects[bucket, key]
    before = set(bench.lake.uris())
    with pytest.raises(ManifestMissing):
        purge_table(ctx)
    assert set(bench.lake.uris()) == before


def test_a_lost_manifest_list_is_no_excuse_before_the_manifests_are_deleted(world: Lake) -> None:
    bench = fresh(world)
    ctx = deleting(bench, DeleteStep.META)
    lose_all(bench.plans.objects)
    gone = min(uri for uri in bench.lake.uris() if "/snap-" in uri and "sibling" not in uri)
    bucket, _, key = gone.removeprefix("s3://").partition("/")
    del bench.lake.objects[bucket, key]
    with pytest.raises(ManifestMissing):
        purge_table(ctx)


def test_a_manifest_of_a_commit_after_the_loss_is_no_deleted_one(world: Lake) -> None:
    bench = fresh(world)
    ctx = deleting(bench, DeleteStep.LISTS)
    lose_all(bench.plans.objects)
    bench.lake.table("doomed").transaction().set_properties(a="b").commit_transaction()
    with pytest.raises(ManifestMissing):
        purge_table(ctx)


@pytest.mark.parametrize("step", [DeleteStep.DATA, DeleteStep.META, DeleteStep.LISTS])
@pytest.mark.parametrize("part", ["index.json", "META-00000.jsonl.gz", "META-lists-00000.jsonl.gz"])
def test_an_altered_plan_is_refused_whatever_else_is_lost(world: Lake, step: DeleteStep, part: str) -> None:
    bench = fresh(world)
    ctx = deleting(bench, step)
    objects = bench.plans.objects
    [altered] = [key for key in objects if key.endswith(f"/{part}") and "/done/" not in key]
    lost = [key for key in objects if "DATA-" in key or "ROOT-" in key or "/META-0" in key]
    for key in [key for key in lost if key != altered]:
        del objects[key]
    objects[altered] = objects[altered][:-1] + bytes([objects[altered][-1] ^ 1])
    before = set(bench.lake.uris())
    with pytest.raises(PlanTampered):
        purge_table(ctx)
    assert set(bench.lake.uris()) & sibling(world) == sibling(world)
    assert bench.lake.pointers["doomed"] in before & set(bench.lake.uris())


def test_a_plan_that_the_request_names_is_not_made_again(world: Lake) -> None:
    bench = fresh(world)
    plan = purge_table(bench.context("doomed", options=dataclasses.replace(STRICT, dry_run=True)))
    bench.head = type(bench.head)()
    ctx = deleting_named(bench, plan)
    lose_all(bench.plans.objects)
    with pytest.raises(PlanTampered):
        purge_table(ctx)


def deleting_named(bench: PurgedTables, plan: PurgeResult) -> PurgeContext:
    options = dataclasses.replace(STRICT, execute_plan=plan.plan_ids[0])
    faults = Faults()
    first = fresh(bench.lake)
    first.plans.objects.update(bench.plans.objects)
    purge_table(first.context("doomed", options=options, faults=faults))
    number = faults.names.index("delete") + 2
    with pytest.raises(Killed):
        purge_table(bench.context("doomed", options=options, faults=Faults(kill_at=number)))
    return bench.context("doomed", options=options)


def test_a_plan_of_the_former_release_has_its_lists_among_the_others(
    world: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_phase(rank: int) -> DeleteStep:
        return DeleteStep.META if step_of(rank) is DeleteStep.LISTS else step_of(rank)

    total = calls_of_a_purge(world).calls
    for number in range(1, total, 5):
        bench = fresh(world)
        with monkeypatch.context() as former:
            former.setattr(index, "step_of", one_phase)
            with contextlib.suppress(Killed):
                purge_table(bench.context("doomed", options=STRICT, faults=Faults(kill_at=number)))
        for key, data in bench.plans.objects.items():
            if key.endswith("index.json"):
                assert not any(chunk["lists"] for chunk in json.loads(data)["chunks"])
        purge_table(bench.context("doomed", options=STRICT))
        assert set(bench.lake.uris()) == sibling(world), f"killed at call {number}"
