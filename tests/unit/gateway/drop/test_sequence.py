"""Drops with purge through the gateway: what each caller gets, what is deleted, and what stays."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.gateway.drop import behavior
from delegation.gateway.drop.behavior import DropBehavior
from delegation.gateway.drop.tombstones import TombstoneState
from delegation.removal.errors import NeighbourChanged
from delegation.storage.locations import ForeignLocations
from delegation.tasks.life.model import Status
from delegation.timestamps import isoformat
from tests.kit.lakes.lake import FAST
from tests.unit.gateway.drop.world import HIDDEN, ORDERS
from tests.unit.removal.purge.planning.executors_here import ENGINES

S = TombstoneState


def test_a_drop_frees_the_name_at_once_and_purges_afterwards(here):
    here.table("other")
    others = here.data()
    uuid = here.dropped()
    assert (here.uuid(), len(here.hidden())) == (None, 1)
    record = here.record()
    assert (record.state, record.table_uuid, record.identifier) == (S.RENAMED, uuid, ORDERS)
    assert here.data() > others
    here.work()
    assert (here.data(), here.hidden(), here.record().state) == (others, [], S.DROPPED)
    (task,) = here.drop_tasks()
    assert (task.status, task.error_code) == (Status.SUCCESS, None)
    assert task.result_summary.startswith("deleted ")


def receipt_of(here):
    [found] = [json.loads(data) for key, data in here.plans.objects.items() if key.endswith("/receipt.json")]
    return found


def test_the_receipt_names_a_dropped_table_that_the_catalog_still_shows(here):
    here.dropped()
    path, destination = f"namespaces/{HIDDEN[0]}/tables/{here.record().destination_name}", here.record().destination
    shown = here.send("GET", path).json()
    here.requests.documents = {f"GET /api/catalog/v1/lake/{path}": shown}
    here.work()
    assert (here.record().state, here.hidden()) == (S.DROPPED, [])
    assert receipt_of(here)["findings"] == [{"code": "DROPPED_TABLE_SHOWN", "count": 1, "sample": [str(destination)]}]
    assert here.drop_tasks()[0].details["findings"] == [{"code": "DROPPED_TABLE_SHOWN", "count": 1}]


def test_the_receipt_names_endpoints_by_which_the_catalog_may_keep_dropped_tables_and_their_names(here):
    undrop = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/undrop"
    known = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/unregister"
    config = {"defaults": {}, "overrides": {"prefix": "lake"}, "endpoints": [known, undrop, undrop, 7]}
    here.requests.documents = {"GET /api/catalog/v1/config": config}
    here.dropped()
    here.work()
    assert here.record().state is S.DROPPED
    assert receipt_of(here)["findings"] == [{"code": "NAME_MAY_BE_RESERVED", "count": 1, "sample": [undrop]}]


def test_a_look_at_what_was_dropped_that_fails_holds_nothing_back(here):
    here.dropped()
    gone = f"/api/catalog/v1/lake/namespaces/{HIDDEN[0]}/tables/{here.record().destination_name}"
    here.requests.lose = lambda request: (
        "request" if request.method == "GET" and f"DELETE {gone}" in here.faults.names else None
    )
    here.work()
    assert here.record().state is S.DROPPED
    assert receipt_of(here)["findings"] == []


def test_the_purge_of_a_tombstone_keeps_what_is_at_a_location_of_others(here):
    here.table()
    theirs = min(path for path in here.data() if path.endswith(".parquet"))
    delete = replace(FAST, foreign=ForeignLocations((theirs,)))
    here.purge = replace(here.purge, settings=replace(here.purge.settings, delete=delete))
    here.behavior = DropBehavior(here.purge, here.tombstones)
    assert here.drop().status == 204
    here.work()
    assert (here.data(), here.hidden(), here.record().state) == ({theirs}, [], S.DROPPED)
    (task,) = here.drop_tasks()
    assert "FOREIGN_LOCATION" in str(task.details)


def test_the_answer_names_the_tombstone_and_when_its_purge_begins(here):
    here.table()
    answer = here.drop()
    assert (answer.tombstone, answer.state, answer.purge_after) == (here.record().tombstone_id, "RENAMED", None)
    repeated = here.drop()
    assert (repeated.status, repeated.tombstone) == (204, answer.tombstone)
    here.run_due()
    assert (here.drop().state, here.drop().tombstone) == ("DROPPED", answer.tombstone)


def test_the_answer_to_a_caller_that_waits_says_whether_the_files_are_deleted(world):
    here = world()
    here.table()
    here.on_sleep = here.run_due
    assert here.drop(mode="wait").state == "DROPPED"
    later = world(grace="2h")
    later.table()
    begins = isoformat(later.clock() + timedelta(hours=2))
    answer = later.drop(mode="wait")
    assert (answer.status, answer.state, answer.purge_after) == (204, "RENAMED", begins)


@pytest.mark.parametrize(
    ("words", "nearest"),
    [
        ({"query": "purgeRequested=true&dry-run=true"}, "query parameter dry-run is unknown"),
        ({"query": "purgeRequested=true&purgeRequest=false"}, "did you mean purgeRequested?"),
        ({"query": "purgeRequested=true&purgeRequested=false"}, "purgeRequested is repeated, so nothing was dropped"),
        ({"more": (("X-Delegation-Table-UID", "0"),)}, "did you mean X-Delegation-Table-Uuid?"),
        ({"more": (("x-delegation-drop-modes", "wait"),)}, "did you mean X-Delegation-Drop-Mode?"),
        ({"mode": "Wait"}, "X-Delegation-Drop-Mode: Wait is unknown, so nothing was dropped; did you mean wait?"),
    ],
)
@pytest.mark.parametrize("key", [None, "k-1"])
def test_a_word_that_a_drop_would_ignore_is_refused_before_anything_is_done(here, words, nearest, key):
    uuid = here.table()
    files = here.data()
    answer = here.drop(**words, key=key)
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST")
    assert nearest in answer.text
    here.work()
    assert (here.uuid(), here.hidden(), here.data()) == (uuid, [], files)


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [("gc.enabled", "false", "GC_DISABLED"), ("delegation.protected", "TRUE", "TABLE_PROTECTED")],
)
def test_what_metadata_alone_decides_is_chosen_before_the_rename(here, name, value, code):
    uuid = here.table(**{name: value})
    answer = here.drop()
    assert (answer.status, answer.code) == (409, "TABLE_NOT_PURGEABLE")
    assert code in answer.text
    assert (here.uuid(), here.hidden(), here.records.newest(1).tombstones) == (uuid, [], ())


def test_a_caller_that_may_drop_and_not_write_may_not_purge(here):
    uuid = here.table()
    answer = here.drop(who="dropper")
    assert (answer.status, answer.code) == (403, "PURGE_FORBIDDEN")
    assert "TABLE_WRITE_DATA" in answer.text
    assert (here.uuid(), here.hidden()) == (uuid, [])


def test_a_trusted_role_replaces_the_proof_that_the_caller_may_write(world):
    here = world(trusted_roles="admins, stewards")
    here.table()
    assert here.drop(who="dropper", roles="others").status == 403
    assert here.drop(who="dropper", roles="stewards").status == 204
    here.work()
    assert here.data() == set()


def test_a_caller_that_may_not_rename_learns_which_grants_are_missing(world):
    here = world(trusted_roles="stewards")
    uuid = here.table()
    answer = here.drop(who="reader", roles="stewards")
    assert (answer.status, answer.code) == (403, "TOMBSTONE_GRANT_MISSING")
    assert "TABLE_CREATE on the namespace delegation_tombstones" in answer.text
    assert "delegation polaris setup lake --tombstones delegation_tombstones --callers ROLE" in answer.text
    assert "delegation doctor --tombstones lake.delegation_tombstones --callers ROLE" in answer.text
    assert (here.uuid(), here.record().state) == (uuid, S.CLEARED)


def test_without_the_namespace_of_tombstones_nothing_is_dropped(here):
    uuid = here.table()
    here.send("DELETE", f"namespaces/{HIDDEN[0]}")
    answer = here.drop()
    assert (answer.status, answer.code) == (400, "TOMBSTONE_NAMESPACE_MISSING")
    assert "delegation polaris setup lake --tombstones delegation_tombstones" in answer.text
    assert "delegation doctor --tombstones lake.delegation_tombstones" in answer.text
    assert here.uuid() == uuid


@pytest.mark.parametrize("federated", [False, True])
def test_what_is_not_supported_can_be_left_to_the_catalog(world, federated):
    here = world(unsupported="pass")
    uuid = here.table()
    if federated:
        here.requests.documents = {DESCRIPTION: FEDERATED}
    else:
        here.send("DELETE", f"namespaces/{HIDDEN[0]}")
    answer = here.drop()
    assert (answer.status, answer.code) == (403, "ForbiddenException")
    assert "DROP_WITH_PURGE_ENABLED" in answer.text
    assert (here.uuid(), here.records.newest(1).tombstones if federated else ()) == (uuid, ())


@pytest.mark.parametrize(
    ("message", "code", "word"),
    [
        ("static-facade", "DROP_UNSUPPORTED", "static-facade"),
        ("Cannot rename on static-facade external catalogs.", "CATALOG_UNSUPPORTED", "EXTERNAL"),
    ],
)
def test_a_catalog_that_does_not_rename_is_not_supported(here, message, code, word):
    uuid = here.table()
    here.requests.fake = {"POST /api/catalog/v1/lake/tables/rename": (400, "BadRequestException", message)}
    answer = here.drop()
    assert (answer.status, answer.code) == (400, code)
    assert word in answer.text
    assert (here.uuid(), here.record().state) == (uuid, S.CLEARED)


DESCRIPTION = "GET /api/management/v1/catalogs/lake"
FEDERATED = {"type": "EXTERNAL", "storageConfigInfo": {"storageType": "S3"}}


@pytest.mark.parametrize(
    ("found", "word"), [(FEDERATED, "EXTERNAL"), ({"storageConfigInfo": {"storageType": "GCS"}}, "storage type is GCS")]
)
def test_a_table_of_a_catalog_whose_files_are_not_the_services_is_not_moved(here, found, word):
    """A federated catalog would rename it in the catalog that owns it, and its files would be purged there."""
    uuid = here.table()
    here.requests.documents = {DESCRIPTION: found}
    answer = here.drop()
    assert (answer.status, answer.code) == (400, "CATALOG_UNSUPPORTED")
    assert word in answer.text
    assert "without purge" in answer.text
    assert (here.uuid(), here.records.newest(1).tombstones, here.hidden()) == (uuid, (), [])


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("HEAD /api/catalog/v1/lake/namespaces/ns/views/orders", "a view"),
        ("GET /api/catalog/polaris/v1/lake/namespaces/ns/generic-tables/orders", "a generic table"),
    ],
)
def test_what_is_no_table_is_named(here, path, what):
    here.requests.fake = {path: (204, "", "")}
    answer = here.drop()
    assert (answer.status, answer.code) == (400, "DROP_UNSUPPORTED")
    assert what in answer.text


def test_a_table_without_its_metadata_file_is_to_be_dropped_without_purge(here):
    here.table()
    here.lake.objects.clear()
    answer = here.drop()
    assert (answer.status, answer.code) == (400, "DROP_UNSUPPORTED")
    assert "without purge" in answer.text


def test_the_catalog_s_own_refusal_is_passed_on(here):
    here.table()
    here.tokens["ann"] = "expired"
    assert here.drop().status == 401
    assert here.records.newest(1).tombstones == ()


def test_a_repeated_delete_is_answered_from_the_record_of_the_same_caller(here):
    here.table()
    assert [here.drop().status for _ in range(3)] == [204, 204, 204]
    assert (len(here.hidden()), len(here.drop_tasks())) == (1, 1)
    assert here.drop(who="service").status == 404
    here.work()
    assert here.drop().status == 404  # more than 15 minutes later


def test_a_name_that_never_was_is_not_found(here):
    answer = here.drop("nothing")
    assert (answer.status, answer.code) == (404, "NoSuchTableException")


def test_drop_recreate_drop_within_a_minute_drops_both(here):
    first = here.dropped()
    second = here.table()
    assert first != second
    here.clock.advance(timedelta(seconds=20))
    assert here.drop().status == 204
    assert (here.uuid(), len(here.hidden())) == (None, 2)
    here.work()
    assert (here.data(), here.hidden()) == (set(), [])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["made anew at the location", "registered from the metadata"])
def test_a_table_that_gets_the_name_and_the_files_keeps_them(here, engine, how, monkeypatch):
    monkeypatch.setattr(behavior, "purge_table", ENGINES[engine])
    first = here.table()
    before = here.data()
    assert here.drop().status == 204
    if how == "registered from the metadata":
        here.register(here.record().metadata_location, "orders")
        second, kept = first, before
    else:
        second = here.table()
        kept = here.data() - before
    here.work()
    assert (here.uuid(), here.data(), here.record().state) == (second, kept, S.DROPPED)


def test_a_stranger_s_table_among_the_tombstones_is_never_purged(here):
    here.catalog.warehouse.replace_properties({"polaris.config.allow.unstructured.table.location": "true"})
    here.table("stranger")
    before = here.data()
    here.rename("stranger", HIDDEN, "dropped_by_nobody")
    here.dropped()
    here.settle()
    assert (here.hidden(), here.data()) == (["dropped_by_nobody"], before)


def test_a_stranger_in_the_place_of_a_tombstone_is_never_purged(here):
    here.dropped()
    left = here.data()
    name = here.record().destination_name
    here.send("DELETE", f"namespaces/{HIDDEN[0]}/tables/{name}")
    here.table("stranger")
    here.rename("stranger", HIDDEN, name)
    strangers = here.data() - left
    here.settle()
    assert here.data() == left | strangers
    assert (here.hidden(), here.record().state) == ([name], S.FAILED)
    assert "TABLE_UUID_MISMATCH" in here.record().problem
    assert [one.tombstone_id for one in here.failed] == [here.record().tombstone_id]


def test_a_task_that_names_no_tombstone_of_our_own_purges_nothing(here):
    here.dropped()
    left = here.data()
    (task,) = here.drop_tasks()
    here.records._items.calls.client.clear()
    here.work()
    assert here.data() == left
    assert here.tasks.reads.get(task.task_id).error_code == "TOMBSTONE_REFUSED"


def test_another_table_that_got_the_name_before_the_rename_gets_it_back(here):
    here.table()

    def swap(request):
        if request.url.path.endswith("tables/rename"):
            here.requests.lose = lambda _request: None
            here.send("DELETE", "namespaces/ns/tables/orders")
            here.swapped = here.table()

    here.requests.lose = swap
    left = here.data()
    answer = here.drop()
    assert (answer.status, answer.code) == (409, "DROP_REFUSED")
    assert (here.uuid(), here.hidden(), here.record().state) == (here.swapped, [], S.RESTORED)
    here.settle()
    assert here.data() >= left


def test_a_table_protected_between_load_and_rename_gets_its_name_back(here):
    uuid = here.table()

    def protect(request):
        if request.url.path.endswith("tables/rename"):
            here.requests.lose = lambda _request: None
            update = {"action": "set-properties", "updates": {"delegation.protected": "true"}}
            here.send("POST", "namespaces/ns/tables/orders", {"requirements": [], "updates": [update]})

    here.requests.lose = protect
    answer = here.drop()
    assert (answer.status, "TABLE_PROTECTED" in answer.text) == (409, True)
    assert here.uuid() == uuid


def rename_answer_lost(request):
    return "answer" if request.url.path.endswith("tables/rename") else None


def rename_request_lost(request):
    return "request" if request.url.path.endswith("tables/rename") else None


def test_a_rename_whose_answer_was_lost_is_confirmed_by_the_service(here):
    uuid = here.table()
    here.requests.lose = rename_answer_lost
    assert here.drop().status == 204
    assert (here.record().table_uuid, here.uuid()) == (uuid, None)


def test_a_rename_that_never_arrived_is_not_confirmed_and_can_be_repeated(here):
    uuid = here.table()
    here.requests.lose = rename_request_lost
    answer = here.drop()
    assert (answer.status, answer.code) == (503, "DROP_NOT_CONFIRMED")
    assert (here.uuid(), here.record().state) == (uuid, S.PENDING)
    pending = here.record()
    here.restart()
    here.requests.lose = lambda _request: None
    assert here.drop().status == 204
    here.settle()
    assert here.records.get(pending.tombstone_id).state is S.CLEARED
    assert here.data() == set()


def test_a_waiting_caller_learns_that_the_purge_was_refused_and_the_table_is_back(world):
    here = world(mode="wait")
    uuid = here.table()
    here.damage()
    left = here.data()
    here.on_sleep = here.run_due
    answer = here.drop()
    assert (answer.status, answer.code) == (409, "DROP_REFUSED")
    assert (here.uuid(), here.data(), here.record().state) == (uuid, left, S.RESTORED)


def test_a_purge_refused_later_leaves_a_tombstone_that_can_be_restored(here):
    uuid = here.table()
    here.damage()
    assert here.drop().status == 204
    here.work()
    record = here.record()
    assert (record.state, here.failed) == (S.FAILED, [record])
    assert here.tombstones.restore(record.tombstone_id).state is S.RESTORED
    assert here.uuid() == uuid


def test_a_waiting_caller_whose_time_ends_repeats_its_request(world):
    here = world(mode="wait")
    here.table()
    answer = here.drop()
    assert (answer.status, answer.code) == (503, "STILL_PURGING")
    assert here.uuid() is None
    here.on_sleep = here.run_due
    assert here.drop().status == 204
    assert here.data() == set()
    assert here.drop().status == 204


def test_a_grace_period_is_not_waited_for(world):
    here = world(mode="wait", **{"grace": "1d", "grace.lake.ns": "2h"})
    here.dropped()
    record = here.record()
    assert record.grace_until == record.created_at + timedelta(hours=2)
    left = here.data()
    here.clock.advance(timedelta(minutes=119))
    here.upkeep()
    here.run_due()
    assert here.data() == left
    here.clock.advance(timedelta(minutes=2))
    here.run_due()
    assert here.data() == set()


def test_a_neighbour_that_changes_while_it_is_read_is_read_again_while_the_caller_waits(world, monkeypatch):
    here = world(mode="wait")
    here.table()
    left = [True, True]
    loaded = behavior.loaded_neighbour

    def changing(*arguments, **named):
        if left:
            left.pop()
            raise NeighbourChanged("lake.ns.clone", "s3://lake/m.avro")
        return loaded(*arguments, **named)

    monkeypatch.setattr(behavior, "loaded_neighbour", changing)
    here.on_sleep = here.run_due
    answers = [here.drop().status for _ in range(8)]
    assert (set(answers[:-1]), answers[-1]) == ({503, 204}, 204)
    assert (here.data(), here.record().state, here.failed) == (set(), S.DROPPED, [])
