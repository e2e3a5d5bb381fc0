"""A plan that is lost after the first delete is made again; one that was altered is refused (issue 24, line 9)."""

import contextlib
import dataclasses
import gzip
import json
import re
from collections.abc import Iterator
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
from tests.kit.lakes.lake import Lake, PurgedTables, busy_table, codes, rows

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
    return Covered.of(world, "doomed")


def sibling(world: Lake) -> set[str]:
    return world.below("s3://lake/wh/sibling/")


LOST = {
    "all": "",
    "index": r"index\.json$",
    "chunks": r"^(?!.*/done/).*\.gz$",
    "lists": r"^(?!.*/done/).*/META-lists-",
}


def lose(bench: PurgedTables, which: str = "all") -> None:
    """Delete objects of the plan."""
    for key in [key for key in bench.plans.objects if re.search(LOST[which], key)]:
        del bench.plans.objects[key]


def again(bench: PurgedTables) -> PurgeResult:
    return purge_table(bench.context("doomed", options=STRICT))


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


@pytest.mark.parametrize("which", LOST)
def test_killed_at_every_call_the_plan_lost_and_run_again(world: Lake, which: str) -> None:
    """At every third call, and at each in a thorough run."""
    total = calls_of_a_purge(world).calls
    replanned = 0
    for number in range(1, total + 1, apart(3)):
        bench = fresh(world)
        if not killed(bench, number):
            continue
        lose(bench, which)
        if bench.lake.pointers["doomed"] not in set(bench.lake.uris()) and which != "chunks":
            continue  # the metadata file is deleted: test_a_plan_lost_after_the_metadata_file
        result = again(bench)
        assert set(bench.lake.uris()) == sibling(world), f"killed at call {number}"
        replanned += "REPLANNED" in codes(result)
    assert replanned > total // 4 // apart(3)


def test_the_new_plan_is_lost_again(world: Lake) -> None:
    at = calls_of_a_purge(world).names.index("steps") + 3
    for second in range(1, 80, apart(5)):
        bench = fresh(world)
        assert killed(bench, at)
        lose(bench)
        killed(bench, second)
        lose(bench)
        if bench.lake.pointers["doomed"] in set(bench.lake.uris()):
            again(bench)
        assert set(bench.lake.uris()) == sibling(world), f"killed at call {second} of the second attempt"


def left_unknown(bench: PurgedTables) -> str:
    """Purge again, which cannot know what is left; return what the error says."""
    with pytest.raises(PurgeError, check=coded("FILES_LEFT_UNKNOWN")) as unknown:
        again(bench)
    return str(unknown.value)


def below(text: str) -> set[str]:
    """Return the locations below which files may remain."""
    return set(text.partition("may remain below ")[2].partition(". Either ")[0].split(", "))


@pytest.mark.parametrize(("which", "steps"), [("all", "DATA, META"), ("index", "DATA, META, LISTS")])
def test_a_plan_lost_after_the_metadata_file_ends_with_what_to_do(world: Lake, which: str, steps: str) -> None:
    bench = fresh(world)
    names = calls_of_a_purge(world).names
    assert killed(bench, len(names) - names[::-1].index("delete"))
    assert set(bench.lake.uris()) == sibling(world)
    versions = dict(bench.plans.objects)
    lose(bench, which)
    # The purge itself deleted the metadata file, and what else it deleted is not listed anywhere any more.
    text = left_unknown(bench)
    assert "another process" not in text
    assert {FORMER_LOCATION, TABLE} <= below(text)
    assert f"these steps are deleted: {steps}. Other files may remain" in text
    assert bench.lake.pointers["doomed"] in text
    bench.plans.objects.update(versions)
    assert again(bench).status == "PURGED"


def test_a_plan_lost_with_the_metadata_file_while_files_are_left_says_below_which_locations(world: Lake) -> None:
    bench = fresh(world)
    deleting(bench, DeleteStep.META)
    lose(bench)
    bench.lake.io.delete(bench.lake.pointers["doomed"])
    left = bench.lake.below(TABLE)
    assert left
    for _ in range(2):
        text = left_unknown(bench)
        assert "restore the plan's objects" in text
        assert "these steps are deleted: DATA. Other files may remain" in text
        assert {FORMER_LOCATION, TABLE} <= below(text)
    assert bench.lake.below(TABLE) == left


def test_a_plan_and_a_metadata_file_that_are_lost_before_anything_was_deleted(world: Lake) -> None:
    bench = fresh(world)
    deleting(bench, DeleteStep.DATA)
    lose(bench)
    bench.lake.io.delete(bench.lake.pointers["doomed"])
    text = left_unknown(bench)
    assert "No step is recorded as done" in text
    assert "whose metadata file was" not in text


def deleting(bench: PurgedTables, step: DeleteStep, options: PurgeOptions = STRICT) -> PurgeContext:
    """Kill a purge at the first delete of a step; return the context of the next attempt."""
    ctx = bench.context("doomed", options=options)
    usual = ctx.store.delete

    def paths() -> Iterator[str]:
        for key, data in bench.plans.objects.items():
            if key.endswith(".jsonl.gz") and "KEPT" not in key and "/done/" not in key:
                records = map(json.loads, gzip.decompress(data).splitlines())
                yield from (one["path"] for one in records if step_of(RANK[one["type"]]) is step)

    def delete(bucket: str, keys: Any) -> Any:
        if {f"s3://{bucket}/{key}" for key in keys} & set(paths()):
            raise Killed("delete")
        return usual(bucket, keys)

    ctx.store.delete = delete  # type: ignore[method-assign]
    with pytest.raises(Killed):
        purge_table(ctx)
    return bench.context("doomed", options=options)


def test_the_manifest_lists_are_deleted_after_what_they_name(world: Lake) -> None:
    bench = fresh(world)
    ctx = bench.context("doomed")
    purge_table(ctx)
    deleted = ctx.store.deleted  # type: ignore[attr-defined]
    lists = [at for at, path in enumerate(deleted) if "/snap-" in path]
    assert len(lists) == 3
    assert max(at for at, path in enumerate(deleted) if path.endswith("-m0.avro")) < min(lists)
    assert deleted[max(lists) + 1 :] == [bench.lake.pointers["doomed"]]


@pytest.mark.parametrize(("step", "map_of"), [(DeleteStep.DATA, "-m0.avro"), (DeleteStep.META, "/snap-")])
def test_a_lost_manifest_or_list_is_no_excuse_before_what_it_names_is_deleted(
    world: Lake, step: DeleteStep, map_of: str
) -> None:
    bench = fresh(world)
    ctx = deleting(bench, step)
    lose(bench)
    bench.lake.io.delete(min(uri for uri in bench.lake.uris() if map_of in uri and "sibling" not in uri))
    assert isinstance(bench.refused(ctx), ManifestMissing)


def test_a_manifest_of_a_commit_after_the_loss_is_no_deleted_one(world: Lake) -> None:
    bench = fresh(world)
    ctx = deleting(bench, DeleteStep.LISTS)
    lose(bench)
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
    for key in [key for key in objects if re.search("DATA-|ROOT-|/META-0", key) and key != altered]:
        del objects[key]
    objects[altered] = objects[altered][:-1] + bytes([objects[altered][-1] ^ 1])
    with pytest.raises(PlanTampered):
        purge_table(ctx)
    assert {bench.lake.pointers["doomed"], *sibling(world)} <= set(bench.lake.uris())


def test_a_plan_that_the_request_names_is_not_made_again(world: Lake) -> None:
    bench = fresh(world)
    ctx = deleting(bench, DeleteStep.META, dataclasses.replace(STRICT, execute_plan=bench.dry_run("doomed", STRICT)))
    lose(bench)
    with pytest.raises(PlanTampered):
        purge_table(ctx)


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
