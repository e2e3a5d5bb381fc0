"""Attacks on the table itself: guards set, names swapped, plans altered, metadata files claimed, many hands at once."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from delegation.errors import GuardRefused
from delegation.polaris.answers import PolarisUnexpectedAnswer
from delegation.polaris.model import LoadedTable
from delegation.removal.errors import PlanTampered
from delegation.removal.expiry.errors import ExpiryError, check_table
from delegation.removal.expiry.planning import metadata_of
from delegation.removal.expiry.run import expire_snapshots
from delegation.storage.locations import ObjectLocation
from delegation.storage.memory import Faults, Killed
from polaris_common.errors import DelegationError
from tests.kit.errors import coded
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.tables import StoryTable
from tests.unit.removal.expiry.test_orders import (
    COMMIT,
    COMPARE_REFS,
    FIRST_DELETE,
    LAST,
    SUBTRACT,
    Event,
    Story,
    check,
    clone,
    drop,
    rename,
    replace,
    roll_back,
    second_expiry,
    until_it_ends,
)

KEEPS = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "true"}


def guarded(story: Story) -> Callable[[], object]:
    """Return what runs an attempt that checks the table's guards as the service does."""
    ctx = story.world.context(story.table)
    uuid = str(story.table.document["table-uuid"])
    object.__setattr__(ctx, "check", lambda table: check_table(metadata_of(table), table_uuid=uuid))
    return lambda: expire_snapshots(ctx)


@pytest.mark.parametrize("at", range(1, LAST + 1))
@pytest.mark.parametrize(("name", "code"), [("gc.enabled", "GC_DISABLED"), ("delegation.protected", "TABLE_PROTECTED")])
def test_no_step_begins_after_a_guard_is_set(name: str, code: str, at: int) -> None:
    story = Story()
    run = guarded(story)
    seen: list[set[str]] = []

    def protect() -> None:
        story.table.set(**{name: "false" if name == "gc.enabled" else "true"})
        seen.append(story.lake.uris())

    story.world.catalogs[-1].before[at] = protect

    with pytest.raises(GuardRefused, check=coded(code)):
        run()

    assert seen[0] - story.lake.uris() == set()
    assert story.lake.readable() == {"t": set()}


def swap(story: Story) -> None:
    """Give the table's name to a clone with the same uuid that went on by itself, and the table another name."""
    copy = StoryTable(story.lake, "copy", "s3://lake/wh/copy")
    story.lake.pointers["copy"] = story.old_pointer
    copy.append()
    story.promise(story.table.refs["main"])
    pointers = story.lake.pointers
    pointers["t"], pointers["copy"] = pointers["copy"], pointers["t"]


@pytest.mark.parametrize("at", range(1, COMPARE_REFS + 1))
def test_a_table_and_its_clone_that_swap_their_names_keep_their_files(at: int) -> None:
    story = Story()
    try:
        story.expire({at: swap})
    except DelegationError as error:
        if error.retryable:
            until_it_ends(story)
    assert {name: files for name, files in story.lake.readable().items() if files} == {}
    assert story.promised <= story.lake.uris()


def plan_objects(world: ExpiringTables, part: str) -> list[str]:
    return sorted(key for key in world.plans.objects if part in key)


@pytest.mark.parametrize("part", ["index", "DATA-", "META-"])
@pytest.mark.parametrize("how", ["another file", "a bit"])
def test_an_altered_plan_deletes_nothing(part: str, how: str) -> None:
    story = Story()
    ctx = story.world.context(story.table)
    victim = story.table.live()[0]

    def alter() -> None:
        for key in plan_objects(story.world, part):
            data = story.world.plans.objects[key]
            if how == "a bit":
                altered = data[:-1] + bytes([data[-1] ^ 1])
            elif part == "index":
                altered = data.replace(b'"outside"', b'"Outside"', 1)
            else:
                lines = gzip.decompress(data).decode().splitlines()
                first = json.loads(lines[0]) | {"path": victim}
                altered = gzip.compress("\n".join([json.dumps(first), *lines[1:], ""]).encode(), mtime=0)
            story.world.plans.objects[key] = altered

    def alter_and_die() -> None:
        alter()
        raise Killed("load")

    story.world.catalogs[-1].before[COMPARE_REFS] = alter
    if part == "index":
        # The index is read by the next attempt; the first one has it.
        story.world.catalogs[-1].lost.add(1)
        story.world.catalogs[-1].before[COMPARE_REFS] = alter_and_die
    with pytest.raises((PlanTampered, Killed)):
        expire_snapshots(ctx)
    with pytest.raises(PlanTampered):
        expire_snapshots(story.world.context(story.table))
    assert story.lake.readable() == {"t": set()}
    assert victim in story.lake.uris()


@pytest.mark.parametrize("name", ["committed.json", "looked.json", "references.json"])
@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"snapshot_ids": 7, "before": []}', b"null", b"\xff"])
def test_a_note_beside_the_plan_that_says_nothing_is_a_typed_error_and_deletes_nothing_needed(
    name: str, content: bytes
) -> None:
    story = Story()
    ctx = story.world.context(story.table, faults=Faults(kill_at=_call_of_first_delete()))
    with pytest.raises(Killed):
        expire_snapshots(ctx)
    [key] = plan_objects(story.world, name)
    story.world.plans.objects[key] = content
    try:
        expire_snapshots(story.world.context(story.table))
    except DelegationError as error:
        assert error.code == "PLAN_TAMPERED"  # noqa: PT017 - without an error it may end well, too
    assert story.lake.readable() == {"t": set()}


def _call_of_first_delete() -> int:
    story, faults = Story(), Faults()
    expire_snapshots(story.world.context(story.table, faults=faults))
    return faults.names.index("delete") + 1


def metadata_files(story: Story) -> set[str]:
    return {uri for uri in story.lake.uris() if uri.endswith(".metadata.json")}


@pytest.mark.parametrize("at", range(COMMIT - 1, FIRST_DELETE + 1))
def test_old_metadata_files_stay_if_the_table_no_longer_says_that_they_go(at: int) -> None:
    story = Story()
    story.table.set(**KEEPS)
    before = metadata_files(story)

    result = story.expire({at: lambda _: story.table.set(**{"write.metadata.delete-after-commit.enabled": "false"})})

    assert result.status == "EXPIRED"
    assert before <= metadata_files(story)
    assert "FILES_SHARED" not in {finding.code for finding in result.findings}
    assert story.of_old[0] not in story.lake.uris()


@pytest.mark.parametrize("at", range(1, COMPARE_REFS + 1))
def test_every_old_metadata_file_that_becomes_a_clones_stays_with_all_that_it_names(at: int) -> None:
    story = Story()
    story.table.set(**KEEPS)

    def register_all(_: Story) -> None:
        for number, pointer in enumerate(sorted(metadata_files(story))):
            if story.lake.document(pointer).get("snapshots"):
                story.lake.pointers[f"clone{number}"] = pointer

    story.expire({at: register_all})

    assert {name: files for name, files in story.lake.readable().items() if files} == {}


RESUMED: list[Event] = [drop, rename, replace, second_expiry, roll_back, clone, swap]


@pytest.mark.parametrize("event", RESUMED)
def test_what_happens_between_two_attempts_harms_nobody(event: Event) -> None:
    """Killed before the first delete, resumed after hours."""
    story = Story()
    with pytest.raises(Killed):
        expire_snapshots(story.world.context(story.table, faults=Faults(kill_at=_call_of_first_delete())))
    if event is clone:
        # What only the old metadata file names is still there; the next attempt asks for the references anew.
        assert story.of_old[0] in story.lake.uris()
    event(story)
    story.lake.now_ms += 10 * 60 * 60 * 1000
    try:
        until_it_ends(story)
    except DelegationError as error:
        assert error.retryable  # noqa: PT017 - both ends are right
    assert {name: files for name, files in story.lake.readable().items() if files} == {}
    assert story.promised <= story.lake.uris()


@pytest.mark.parametrize("at", [1, SUBTRACT, FIRST_DELETE], ids=["plan", "subtract", "a look"])
def test_a_manifest_that_another_expiry_deletes_while_it_is_read_ends_in_no_failure(at: int) -> None:
    """Another engine expires a retained snapshot between a load and the reading of what stays."""
    story = Story()
    table = story.table
    table.tag("kept", table.append())
    doomed = table.append()
    table.tag("soon", doomed)
    table.append()
    ctx = story.world.context(table)
    catalog = story.world.catalogs[-1]
    read, done = ctx.store.read, list[bool]()

    def other_engine() -> None:
        table.drop_ref("soon")
        only = story.lake.named_by(table.document, [doomed])
        table.remove_snapshots(doomed)
        for uri in only - story.lake.read_by(table.document):
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            story.lake.objects.pop((bucket, key), None)

    def reading(location: ObjectLocation, *, limit: int) -> bytes:
        if catalog.calls == at and not done:
            done.append(True)
            other_engine()
        return read(location, limit=limit)

    ctx.store.read = reading  # type: ignore[method-assign]
    if at == FIRST_DELETE:
        catalog.before[at] = table.append

    assert expire_snapshots(ctx).status == "EXPIRED"
    assert done
    assert story.lake.readable() == {"t": set()}


def test_a_second_expiry_that_is_first_by_a_moment_ends_in_no_failure() -> None:
    """Both remove the same snapshots; Iceberg refuses the later commit, which would remove more than there are."""
    story = Story()
    result = story.expire({COMMIT: second_expiry})

    assert result.status == "EXPIRED"
    check(story, result)


def test_a_commit_that_the_catalog_refuses_as_invalid_is_not_repeated() -> None:
    story = Story()
    ctx = story.world.context(story.table)
    sent: list[object] = []

    def refuse(*call: Any, **_: Any) -> LoadedTable:
        sent.append(call)
        raise PolarisUnexpectedAnswer("Polaris answered 400", status=400)

    story.world.catalogs[-1].commit_table = refuse  # type: ignore[method-assign]
    before = story.lake.uris()
    with pytest.raises(ExpiryError, check=coded("COMMIT_REFUSED"), match="Polaris answered 400"):
        expire_snapshots(ctx)
    assert (len(sent), before - story.lake.uris()) == (1, set())


def test_comparing_a_new_commit_reads_no_manifest_list_again() -> None:
    """Otherwise a table with long history and frequent commits is never looked at between two of them."""
    story = Story()
    for _ in range(12):
        story.table.tag(f"t{story.lake.next()}", story.table.append())
    ctx = story.world.context(story.table)
    catalog, reads = story.world.catalogs[-1], list[tuple[int, str]]()
    read = ctx.store.read

    def counting(location: ObjectLocation, *, limit: int) -> bytes:
        reads.append((catalog.calls, location.key))
        return read(location, limit=limit)

    ctx.store.read = counting  # type: ignore[method-assign]
    catalog.before[FIRST_DELETE] = story.table.append

    assert expire_snapshots(ctx).status == "EXPIRED"

    assert len([key for call, key in reads if call == FIRST_DELETE and "/snap" in key]) == 1
