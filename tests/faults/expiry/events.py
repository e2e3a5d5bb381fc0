"""What others do beside an expiry: each event is an act of one of them on the state as it is then."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace as keeping
from typing import Final

from delegation.removal.expiry.errors import check_table
from delegation.removal.expiry.planning import metadata_of
from delegation.removal.expiry.retention import Retention
from delegation.removal.expiry.run import expire_snapshots
from delegation.storage.memory import Faults, Killed
from polaris_common.errors import DelegationError
from tests.faults.expiry.tale import ASKED, FOREVER, Look, Tale
from tests.kit.stories.expiries import EVERYTHING, ExpiringTables
from tests.kit.stories.tables import MINUTE, StoryTable

Event = Callable[[Tale], None]
_HOURS: Final = 2 * 60 * MINUTE
_KEPT: Final = {"max-ref-age-ms": FOREVER}


def append(tale: Tale) -> None:
    if tale.is_there():
        tale.table.append()


def delete_files(tale: Tale) -> None:
    if tale.is_there() and tale.table.live():
        tale.table.delete(tale.table.live()[0])


def rewrite_manifests(tale: Tale) -> None:
    if tale.is_there():
        tale.table.rewrite_manifests()


def tag_old(tale: Tale) -> None:
    if tale.has(tale.old):
        tale.table.tag("new", tale.old, **_KEPT)
        tale.tags["new"] = tale.old
        tale.promise_snapshot(tale.old)


def branch_old(tale: Tale) -> None:
    if tale.has(tale.old):
        tale.table.branch("side", tale.old, **_KEPT)
        tale.tags["side"] = tale.table.append(ref="side")
        tale.promise_snapshot(tale.tags["side"])


def branch_at_old(tale: Tale) -> None:
    """Make a branch at the old snapshot without a commit to it."""
    if tale.has(tale.old):
        tale.table.branch("bare", tale.old, **_KEPT)
        tale.tags["bare"] = tale.old
        tale.promise_snapshot(tale.old)


def move_stale_tag(tale: Tale) -> None:
    """Move the tag that is to go to another snapshot that is to go."""
    if tale.has(tale.middle):
        tale.table.tag("stale", tale.middle, **_KEPT)
        tale.tags["stale"] = tale.middle
        tale.promise_snapshot(tale.middle)


def drop_stale_tag(tale: Tale) -> None:
    if tale.is_there() and "stale" in tale.table.refs and "stale" not in tale.tags:
        tale.table.drop_ref("stale")


def tag_and_drop_tag(tale: Tale) -> None:
    if tale.has(tale.old):
        tale.table.tag("brief", tale.old, **_KEPT)
        tale.table.drop_ref("brief")


def roll_back(tale: Tale) -> None:
    if tale.has(tale.old):
        # What main reads is checked of every table; a writer may move it on, and the snapshot expires then.
        tale.table.rollback(tale.old)


def roll_back_and_forth(tale: Tale) -> None:
    if tale.has(tale.old):
        head = tale.table.refs["main"]
        tale.table.rollback(tale.old)
        tale.table.rollback(head)


def move_pointer_back(tale: Tale) -> None:
    """Give the table the metadata file from before everything, as an operator may who restores a catalog."""
    if tale.is_there() and tale.files_of_old():
        _point_back(tale)


def _point_back(tale: Tale) -> None:
    tale.lake.pointers["t"] = tale.old_pointer
    tale.pointer_moved = True
    tale.tags.clear()
    # What refs and properties of the later state promised is no more.
    tale.promises = [one for one in tale.promises if one.look != "load" or one.tables]
    tale.promise("load", set(), "t")


def clone(tale: Tale) -> None:
    """Register an older metadata file under another name."""
    if "clone" not in tale.lake.pointers and (files := tale.files_of_old()):
        tale.lake.pointers["clone"] = tale.old_pointer
        tale.promise("neighbours", files, "clone")


def clone_of_now(tale: Tale) -> None:
    """Register the present metadata file under another name."""
    if tale.is_there() and "twin" not in tale.lake.pointers and "t" not in tale.missing():
        files = {tale.table.pointer, *(one["metadata-file"] for one in tale.table.document.get("metadata-log") or ())}
        files |= tale.lake.read_by(tale.table.document)
        tale.lake.pointers["twin"] = tale.table.pointer
        tale.promise("neighbours", files, "twin")


def add_files(tale: Tale) -> None:
    """Have another table take a file that only the old snapshot has."""
    if tale.of_old[0] in tale.lake.uris() and "other" not in tale.lake.pointers:
        StoryTable.create(tale.lake, "other").append(paths=[tale.of_old[0]])
        tale.promise("neighbours", {tale.of_old[0]}, "other")


def bring_file_back(tale: Tale) -> None:
    """Add a file again to the table that only the old snapshot has."""
    if tale.is_there() and tale.of_old[0] in tale.lake.uris():
        tale.table.append(paths=[tale.of_old[0]])
        tale.promise("load", {tale.of_old[0]}, "t")


def drop(tale: Tale) -> None:
    if tale.is_there():
        tale.promise("load", tale.lake.read_by(tale.table.document, [tale.table.refs["main"]]))
        del tale.lake.pointers["t"]


def rename(tale: Tale) -> None:
    if tale.is_there():
        tale.lake.pointers["renamed"] = tale.lake.pointers.pop("t")


def rename_and_create(tale: Tale) -> None:
    """Rename the table, and create another one under its name and at its location."""
    if tale.is_there():
        rename(tale)
        StoryTable.create(tale.lake).append()


def rename_and_clone(tale: Tale) -> None:
    """Rename the table, and register an older metadata file of it under its name: one uuid, two tables."""
    if tale.is_there():
        tale.promise("neighbours", set(), "renamed")
        rename(tale)
        if tale.files_of_old():
            _point_back(tale)


def replace(tale: Tale) -> None:
    """Drop the table and create another one under its name and at its location."""
    if tale.is_there():
        drop(tale)
        StoryTable.create(tale.lake).append()


def replace_and_take_files(tale: Tale, seen_by: Look = "load") -> None:
    """Drop the table, and have another one under its name take a file that only the old snapshot has."""
    if tale.is_there():
        drop(tale)
        table = StoryTable.create(tale.lake)
        if tale.of_old[0] in tale.lake.uris():
            table.append(paths=[tale.of_old[0]])
            tale.promise(seen_by, {tale.of_old[0]}, "t")


def credentials_expire(tale: Tale) -> None:
    tale.lake.now_ms += _HOURS


def credentials_expire_and_are_not_renewed(tale: Tale) -> None:
    """Let the credentials end while the catalog does not answer; the next attempt's loads are answered."""
    tale.lake.now_ms += _HOURS
    tale.renewal_fails = True


def replace_and_credentials_expire(tale: Tale) -> None:
    """Drop the table, have another one under its name take an old file, and let the credentials end."""
    replace_and_take_files(tale, "renewal")
    tale.lake.now_ms += _HOURS


def drop_and_restore(tale: Tale) -> None:
    """Drop the table and register its present metadata file again."""
    if tale.is_there():
        pointer = tale.table.pointer
        del tale.lake.pointers["t"]
        tale.lake.pointers["t"] = pointer


def _other_expiry(tale: Tale, retention: Retention, faults: Faults | None = None) -> None:
    if not tale.is_there():
        return
    before, other = tale.lake.uris(), ExpiringTables(lake=tale.lake)
    ctx = other.context(tale.table, retention, task_id="second", faults=faults)
    with suppress(DelegationError, Killed):
        expire_snapshots(keeping(ctx, check=lambda table: check_table(metadata_of(table), table_uuid=tale.uuid)))
    tale.deleted_by_others |= before - tale.lake.uris()


def second_expiry(tale: Tale) -> None:
    _other_expiry(tale, ASKED)


def second_keeps_more(tale: Tale) -> None:
    _other_expiry(tale, Retention(older_than_ms=FOREVER, retain_last=3))


def second_takes_every_ref(tale: Tale) -> None:
    """Run an expiry that removes every ref but main, and so what was promised for them."""
    if tale.is_there():
        tale.table.apply(
            *({"action": "remove-snapshot-ref", "ref-name": name} for name in tale.table.refs if name != "main")
        )
        tale.tags.clear()
        tale.promises = [one for one in tale.promises if one.tables]
        _other_expiry(tale, EVERYTHING)


def second_dies(tale: Tale) -> None:
    """Run another expiry that dies after its commit, among its deletes."""
    if tale.is_there():
        _other_expiry(tale, ASKED, Faults(kill_at=60))


def second_dies_before_its_deletes(tale: Tale) -> None:
    if tale.is_there():
        _other_expiry(tale, ASKED, Faults(kill_at=32))


def expire_metadata_only(tale: Tale) -> None:
    """Have another engine remove the old snapshots and keep all files; refs to them go too."""
    if tale.is_there():
        loose = [one for one in (tale.old, tale.middle) if tale.has(one) and one != tale.table.refs["main"]]
        tale.tags = {name: at for name, at in tale.tags.items() if at not in loose}
        if loose:
            tale.promises = [one for one in tale.promises if one.tables]
            tale.table.remove_snapshots(*loose)


def set_property(tale: Tale) -> None:
    if tale.is_there():
        tale.table.set(a="b")


def keep_metadata(tale: Tale) -> None:
    """Take back that writers delete old metadata files."""
    if tale.is_there():
        tale.table.set(**{"write.metadata.delete-after-commit.enabled": "false"})


def forbid(tale: Tale) -> None:
    """Set gc.enabled to false: from the next load on nothing is deleted."""
    if tale.is_there():
        tale.table.set(**{"gc.enabled": "false"})
        tale.promise("load", tale.lake.uris())


def protect(tale: Tale) -> None:
    if tale.is_there():
        tale.table.set(**{"delegation.protected": "true"})
        tale.promise("load", tale.lake.uris())


def detach_policy(tale: Tale) -> None:
    """Detach the policy: from the next look at it on nothing is deleted."""
    tale.withdrawn = True
    tale.promise("policy", tale.lake.uris())


def lose_plan(tale: Tale) -> None:
    """Lose everything in the plan bucket."""
    tale.plan_lost = True
    tale.world.plans.objects.clear()


def lose_notes(tale: Tale) -> None:
    """Lose what the expiry noted beside its plan."""
    for key in [one for one in tale.world.plans.objects if one.endswith((".json",)) and "index" not in one]:
        del tale.world.plans.objects[key]


def lose_a_chunk(tale: Tale) -> None:
    """Lose the files of a plan and keep its index."""
    tale.plan_lost = True
    for key in [one for one in tale.world.plans.objects if "index" not in one and not one.endswith(".json")]:
        del tale.world.plans.objects[key]


def commit_arrives(tale: Tale) -> None:
    """Have a commit without an answer be applied now."""
    tale.arrive()


EVENTS: Final[Sequence[Event]] = (
    append, delete_files, rewrite_manifests, tag_old, branch_old, branch_at_old, move_stale_tag, drop_stale_tag,
    tag_and_drop_tag, roll_back, roll_back_and_forth, move_pointer_back, clone, clone_of_now, add_files,
    bring_file_back, drop, rename, rename_and_create, rename_and_clone, replace, replace_and_take_files,
    credentials_expire, credentials_expire_and_are_not_renewed, replace_and_credentials_expire, drop_and_restore,
    second_expiry, second_keeps_more, second_takes_every_ref, second_dies,
    second_dies_before_its_deletes, expire_metadata_only, set_property, keep_metadata, forbid, protect, detach_policy,
    lose_plan, lose_notes, lose_a_chunk, commit_arrives,
)  # fmt: skip
