"""Each rule over states of the catalog: applied, not applied, or incompatible."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.gateway.keys.rules import commits, namespaces, tables, views
from delegation.gateway.keys.rules.choice import rule_for
from delegation.gateway.keys.rules.rule import ALWAYS_RUN, Applied, Found, Incompatible, NotApplied
from delegation.gateway.routing import DEFAULT_PATHS, Operation, Target
from infra.local.catalog.metadata import apply, new_metadata
from tests.effort import examples
from tests.unit.gateway.keys.mutations import SCHEMA, VIEW_VERSION
from tests.unit.gateway.world import request

ONE = "11111111-1111-1111-1111-111111111111"
OTHER = "22222222-2222-2222-2222-222222222222"
CREATE = {
    "name": "t",
    "schema": {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": 5, "name": "id", "required": True, "type": "long", "doc": "the id"},
            {"id": 6, "name": "at", "required": False, "type": "timestamp"},
            {
                "id": 7,
                "name": "tags",
                "required": False,
                "type": {"type": "list", "element-id": 8, "element-required": False, "element": "string"},
            },
        ],
    },
    "partition-spec": {"fields": [{"source-id": 6, "transform": "day", "name": "at_day"}]},
    "write-order": {
        "fields": [{"source-id": 5, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}]
    },
    "properties": {"format-version": "2", "owner": "me"},
}


def found(metadata: Any, location: str = "s3://b/t/metadata/1.json") -> Found:
    return Found(document={"metadata": metadata, "metadata-location": location})


def made(**changes: Any) -> dict[str, Any]:
    return new_metadata(copy.deepcopy(CREATE), "s3://b/t", now_ms=1) | changes


def kind(judgement: Any) -> str:
    return {Applied: "applied", NotApplied: "not applied", Incompatible: "incompatible"}[type(judgement)]


def changed(**members: Any) -> dict[str, Any]:
    return {**CREATE, **members}


@pytest.mark.parametrize(
    ("wanted", "same"),
    [
        (CREATE, True),
        (changed(location="s3://b/t/"), True),
        (changed(location="s3://b/u"), False),
        (changed(properties={"owner": "me", "format-version": "3"}), False),
        (changed(properties={}), True),
        (changed(properties={"owner": "you"}), False),
        (changed(schema=SCHEMA, **{"partition-spec": None, "write-order": None}), False),
        (changed(**{"partition-spec": None}), False),
        (changed(**{"partition-spec": {"fields": [{"source-id": 5, "transform": "day", "name": "at_day"}]}}), False),
        (changed(**{"write-order": None}), False),
    ],
)
def test_a_table_is_compared_with_what_was_requested_by_names(wanted, same):
    assert tables.is_as_requested(made(), wanted) is same


def test_a_table_that_evolved_is_still_as_requested():
    added = {"action": "add-schema", "schema": SCHEMA, "last-column-id": 9}
    current = {"action": "set-current-schema", "schema-id": -1}
    spec = {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}}
    later = apply([added, current, spec], made(), now_ms=2, previous_location="s3://b/t/metadata/0.json")
    assert tables.is_as_requested(later, CREATE)


@pytest.mark.parametrize(
    ("before", "state", "expected"),
    [
        ({"exists": False}, None, "not applied"),
        ({"exists": False}, found(made()), "applied"),
        ({"exists": False}, found(made(properties={})), "incompatible"),
        ({"exists": True}, found(made()), "not applied"),
        (None, found(made()), "not applied"),
    ],
)
def test_a_creation_is_applied_if_the_table_was_not_there_before(before, state, expected):
    assert kind(tables.creation("v1/lake/namespaces/ns/tables", CREATE).judge(before, [state])) == expected


LOGGED = made(**{"metadata-log": [{"metadata-file": "s3://b/t/metadata/1.json", "timestamp-ms": 1}]})


@pytest.mark.parametrize(
    ("before", "state", "expected"),
    [
        ({"location": None}, None, "not applied"),
        ({"location": None}, found(made()), "applied"),
        ({"location": None}, found(LOGGED, "s3://b/t/metadata/2.json"), "applied"),
        ({"location": None}, found(made(), "s3://b/t/metadata/2.json"), "incompatible"),
        ({"location": "s3://b/t/metadata/1.json"}, found(made()), "not applied"),
        ({"location": "s3://b/t/metadata/0.json"}, found(made()), "applied"),
        ({"location": "s3://b/t/metadata/0.json"}, found(made(), "s3://b/t/metadata/0.json"), "not applied"),
        (None, found(made()), "not applied"),
    ],
)
def test_a_registration_is_applied_if_the_table_has_or_had_the_file(before, state, expected):
    rule = tables.registration(
        "v1/lake/namespaces/ns/register", {"name": "t", "metadata-location": "s3://b/t/metadata/1.json"}
    )
    assert kind(rule.judge(before, [state])) == expected


@pytest.mark.parametrize(
    ("before", "location", "expected"),
    [
        ({"exists": False}, None, "not applied"),
        ({"exists": False}, "s3://b/v/metadata/1.json", "applied"),
        ({"exists": False}, "s3://b/v/metadata/2.json", "incompatible"),
        ({"exists": True}, "s3://b/v/metadata/1.json", "not applied"),
        (None, "s3://b/v/metadata/1.json", "not applied"),
    ],
)
def test_the_registration_of_a_view_is_applied_if_it_was_not_there_and_has_the_file(before, location, expected):
    rule = views.registration(
        "v1/lake/namespaces/ns/register-view", {"name": "v w", "metadata-location": "s3://b/v/metadata/1.json"}
    )
    assert [each.path for each in rule.after] == ["v1/lake/namespaces/ns/views/v%20w"]
    state = None if location is None else found({"view-uuid": ONE}, location)
    assert kind(rule.judge(before, [state])) == expected


@pytest.mark.parametrize("rule", [tables.drop("v1/x"), views.drop("v1/x")])
@pytest.mark.parametrize(
    ("before", "uuid", "expected"),
    [
        ({"uuid": ONE}, None, "applied"),
        ({"uuid": ONE}, ONE.upper(), "not applied"),
        ({"uuid": ONE}, OTHER, "applied"),
        ({"uuid": None}, None, "not applied"),
        ({"uuid": None}, OTHER, "not applied"),
        (None, None, "not applied"),
    ],
)
def test_a_drop_is_applied_if_what_had_the_uuid_is_gone_and_never_drops_another(rule, before, uuid, expected):
    state = None if uuid is None else found({"table-uuid": uuid, "view-uuid": uuid})
    assert kind(rule.judge(before, [state])) == expected


@pytest.mark.parametrize(
    ("before", "destination", "source", "expected"),
    [
        (ONE, ONE, None, "applied"),
        (ONE, ONE, OTHER, "applied"),
        (ONE, None, ONE, "not applied"),
        (ONE, OTHER, ONE, "not applied"),
        (ONE, None, None, "incompatible"),
        (ONE, OTHER, OTHER, "incompatible"),
        (None, None, None, "not applied"),
        (None, OTHER, None, "not applied"),
    ],
)
def test_a_rename_follows_the_uuid(before, destination, source, expected):
    body = {"source": {"namespace": ["a", "b"], "name": "t"}, "destination": {"namespace": ["c"], "name": "u"}}
    rule = tables.rename(Target(Operation.RENAME_TABLE, "lake"), body, DEFAULT_PATHS.table)
    assert [each.path for each in (*rule.before, *rule.after)] == [
        "v1/lake/namespaces/a%1Fb/tables/t", "v1/lake/namespaces/c/tables/u", "v1/lake/namespaces/a%1Fb/tables/t",
    ]  # fmt: skip
    states = [None if uuid is None else found({"table-uuid": uuid}) for uuid in (destination, source)]
    noted = rule.note([None if before is None else found({"table-uuid": before})])
    assert kind(rule.judge(noted, states)) == expected
    assert kind(rule.judge(None, states)) == "not applied"


@pytest.mark.parametrize(
    ("before", "properties", "expected"),
    [
        ({"exists": False}, None, "not applied"),
        ({"exists": False}, {"a": "1", "location": "s3://b/ns"}, "applied"),
        ({"exists": False}, {"a": "2"}, "incompatible"),
        ({"exists": True}, {"a": "1"}, "not applied"),
        (None, {"a": "1"}, "not applied"),
    ],
)
def test_a_namespace_is_created_if_it_was_not_there_before(before, properties, expected):
    body = {"namespace": ["x", "ns"], "properties": {"a": "1"}}
    rule = namespaces.creation(Target(Operation.CREATE_NAMESPACE, "lake"), body, DEFAULT_PATHS)
    assert rule.after[0].path == "v1/lake/namespaces/x%1Fns"
    state = None if properties is None else Found(document={"namespace": ["x", "ns"], "properties": properties})
    assert kind(rule.judge(before, [state])) == expected


@pytest.mark.parametrize(
    ("first", "now", "expected"),
    [
        ({"a": "1", "b": "1"}, {"a": "2"}, "applied"),
        ({"a": "1", "b": "1"}, {"a": "1", "b": "1", "c": "new"}, "not applied"),
        ({"a": "1", "b": "1"}, {"a": "2", "b": "1"}, "incompatible"),
        ({"a": "1", "b": "1"}, {"a": "3", "b": "1"}, "incompatible"),
        ({"a": "1", "b": "1"}, None, "not applied"),
    ],
)
def test_properties_are_set_if_all_show_and_are_not_if_none_changed(first, now, expected):
    body = {"removals": ["b", "never"], "updates": {"a": "2"}}
    rule = namespaces.properties("v1/lake/namespaces/ns/properties", body)
    noted = rule.note([Found(document={"properties": first})])
    judged = rule.judge(noted, [None if now is None else Found(document={"properties": now})])
    assert kind(judged) == expected
    if isinstance(judged, Applied):
        assert judged.answer.body == b'{"updated":["a"],"removed":["b"],"missing":["never"]}'


SNAPSHOTS = [
    {"snapshot-id": number, "timestamp-ms": number, "manifest-list": "s3://b/t/m", "sequence-number": number}
    for number in (1, 2)
]
WITH_SNAPSHOTS = made(
    snapshots=SNAPSHOTS,
    refs={"main": {"snapshot-id": 2, "type": "branch"}, "tag": {"snapshot-id": 1, "type": "tag"}},
    **{
        "current-snapshot-id": 2,
        "statistics": [{"snapshot-id": 1, "statistics-path": "s3://b/t/s"}],
        "partition-statistics": [{"snapshot-id": 1, "statistics-path": "s3://b/t/p"}],
        "last-sequence-number": 2,
    },
)
NEW_SPEC = {"spec-id": 1, "fields": [{"source-id": 1, "transform": "bucket[4]", "name": "b", "field-id": 1001}]}
NEW_ORDER = {
    "order-id": 2,
    "fields": [{"source-id": 2, "transform": "identity", "direction": "desc", "null-order": "nulls-last"}],
}
UPDATES: list[list[dict[str, Any]]] = [
    [{"action": "upgrade-format-version", "format-version": 3}],
    [
        {"action": "add-schema", "schema": {**SCHEMA, "schema-id": 1}, "last-column-id": 7},
        {"action": "set-current-schema", "schema-id": -1},
    ],
    [{"action": "add-spec", "spec": NEW_SPEC}, {"action": "set-default-spec", "spec-id": -1}],
    [
        {"action": "add-sort-order", "sort-order": NEW_ORDER},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ],
    [{"action": "set-location", "location": "s3://b/moved/"}],
    [{"action": "set-properties", "updates": {"a": "1", "owner": "you"}}],
    [{"action": "remove-properties", "removals": ["owner", "never"]}],
    [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}],
    [{"action": "set-snapshot-ref", "ref-name": "new", "type": "tag", "snapshot-id": 2, "max-ref-age-ms": 9}],
    [{"action": "remove-snapshot-ref", "ref-name": "tag"}],
    [{"action": "remove-snapshots", "snapshot-ids": [1]}],
    [{"action": "set-statistics", "snapshot-id": 1, "statistics": {"snapshot-id": 1, "statistics-path": "s3://b/n"}}],
    [{"action": "remove-statistics", "snapshot-id": 1}],
    [
        {
            "action": "set-partition-statistics",
            "partition-statistics": {"snapshot-id": 1, "statistics-path": "s3://b/n"},
        }
    ],
    [{"action": "remove-partition-statistics", "snapshot-id": 1}],
]
OTHERS = [
    {"action": "set-properties", "updates": {"unrelated": "1"}},
    {"action": "set-snapshot-ref", "ref-name": "unrelated", "type": "tag", "snapshot-id": 2},
]


def after(updates, base=WITH_SNAPSHOTS):
    return apply(updates, base, now_ms=3, previous_location="s3://b/t/metadata/0.json")


def topic(group):
    """What a group is about: two of one topic would undo each other."""
    action = group[0]["action"]
    return next((each for each in ("snapshot", "statistics", "properties") if each in action), action).replace(
        "statistics", "snapshot"
    )


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(UPDATES), min_size=1, max_size=3, unique_by=topic))
def test_a_commit_without_snapshots_is_judged_by_everything_that_it_touches(groups):
    updates = [update for group in groups for update in group]
    base = found(WITH_SNAPSHOTS)
    before = commits.touched(updates, base)
    assert kind(commits.judge_commit(updates, before, base)) == "not applied"
    assert kind(commits.judge_commit(updates, before, found(after(OTHERS), "s3://b/2"))) == "not applied"
    applied = found(after(updates), "s3://b/2")
    assert kind(commits.judge_commit(updates, before, applied)) == "applied"
    assert kind(commits.judge_commit(updates, None, applied)) == "applied"
    assert kind(commits.judge_commit(updates, before, found(after(OTHERS, after(updates)), "s3://b/3"))) == "applied"


def test_a_commit_of_which_only_a_part_shows_is_not_run_again():
    updates = [{"action": "set-properties", "updates": {"a": "1", "b": "1"}}]
    before = commits.touched(updates, found(made()))
    overwritten = found(made(properties={"owner": "me", "a": "1", "b": "2"}), "s3://b/2")
    assert kind(commits.judge_commit(updates, before, overwritten)) == "incompatible"
    assert kind(commits.judge_commit(updates, None, overwritten)) == "not applied"
    assert kind(commits.judge_commit(updates, before, None)) == "not applied"


def test_an_update_that_is_unknown_was_not_applied_only_if_nothing_was_committed():
    updates = [{"action": "of-the-future"}]
    before = commits.touched(updates, found(made()))
    assert kind(commits.judge_commit(updates, before, found(made()))) == "not applied"
    assert kind(commits.judge_commit(updates, before, found(made(), "s3://b/2"))) == "incompatible"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"snapshots": []}, "not applied"),
        ({"snapshots": [{"snapshot-id": 7}]}, "applied"),
        ({"snapshots": [{"snapshot-id": 8, "parent-snapshot-id": 7}]}, "applied"),
        ({"snapshots": [], "snapshot-log": [{"snapshot-id": 7, "timestamp-ms": 1}]}, "applied"),
        ({"snapshots": [{"snapshot-id": 8}]}, "not applied"),
    ],
)
def test_a_commit_with_a_snapshot_was_applied_if_the_table_knows_its_id(members, expected):
    updates = [{"action": "add-snapshot", "snapshot": {"snapshot-id": 7}}]
    rule = commits.commit("v1/x", {"updates": updates})
    assert (kind(rule.judge(None, [found(made(**members))])), rule.before) == (expected, ())


def test_the_first_commit_of_a_staged_table_follows_its_uuid():
    body = {"requirements": [{"type": "assert-create"}], "updates": [{"action": "assign-uuid", "uuid": ONE}]}
    rule = commits.commit("v1/x", body)
    states = [None, found(made(**{"table-uuid": ONE.upper()})), found(made(**{"table-uuid": OTHER}))]
    assert [kind(rule.judge(None, [state])) for state in states] == ["not applied", "applied", "not applied"]


def transaction(*updates):
    changes = [
        {"identifier": {"namespace": ["ns"], "name": name}, "requirements": [], "updates": [update]}
        for name, update in zip("tu", updates, strict=True)
    ]
    return commits.transaction(Target(Operation.COMMIT_TRANSACTION, "lake"), {"table-changes": changes}, DEFAULT_PATHS)


SNAPSHOT_7 = {"action": "add-snapshot", "snapshot": {"snapshot-id": 7}}
SET = {"action": "set-properties", "updates": {"a": "1"}}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (made(snapshots=[{"snapshot-id": 7}]), made(properties={"a": "overwritten since"}), "applied"),
        (made(), made(), "not applied"),
        (made(), made(properties={"a": "1"}), "not applied"),
        (made(), made(properties={"a": "2"}), "incompatible"),
    ],
)
def test_a_transaction_was_applied_if_one_of_its_tables_proves_it(first, second, expected):
    rule = transaction(SNAPSHOT_7, SET)
    assert len(rule.before) == 1  # of the table whose snapshot will prove it nothing need be known
    noted = rule.note([found(made())])
    assert kind(rule.judge(noted, [found(first), found(second)])) == expected


def test_a_transaction_of_properties_alone_was_applied_if_all_show():
    rule = transaction(SET, SET)
    noted, shows = rule.note([found(made()), found(made())]), found(made(properties={"a": "1"}))
    assert kind(rule.judge(noted, [shows, shows])) == "applied"
    assert kind(rule.judge(noted, [shows, found(made())])) == "not applied"


VIEW = {"view-uuid": ONE, "versions": [VIEW_VERSION], "current-version-id": 1, "schemas": [SCHEMA], "properties": {}}


def test_a_view_is_known_by_its_text_and_the_clients_time_stamp():
    rule = views.creation("v1/lake/namespaces/ns/views", {"name": "v", "schema": SCHEMA, "view-version": VIEW_VERSION})
    other = {**VIEW, "versions": [{**VIEW_VERSION, "timestamp-ms": 1}]}
    judged = [kind(rule.judge({"exists": False}, [state])) for state in (None, found(VIEW), found(other))]
    assert judged == ["not applied", "applied", "incompatible"]
    assert kind(rule.judge({"exists": True}, [found(VIEW)])) == "not applied"


def test_a_replaced_view_shows_its_version_as_the_current_one():
    version = {**VIEW_VERSION, "version-id": 2, "timestamp-ms": 9}
    updates = [
        {"action": "assign-uuid", "uuid": ONE},
        {"action": "add-schema", "schema": {**SCHEMA, "schema-id": 4}},
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    rule = views.replacement("v1/lake/namespaces/ns/views/v", {"updates": updates})
    noted = rule.note([found(VIEW)])
    # The catalog may give the version another number.
    done = {**VIEW, "versions": [VIEW_VERSION, {**version, "version-id": 3}], "current-version-id": 3}
    other = {**VIEW, "versions": [VIEW_VERSION, {**version, "timestamp-ms": 8}], "current-version-id": 2}
    judged = [kind(rule.judge(noted, [state])) for state in (found(VIEW), found(done), found(other), None)]
    assert judged == ["not applied", "applied", "incompatible", "not applied"]


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        (Operation.CREATE_TABLE, b"{}"),
        (Operation.CREATE_TABLE, b"["),
        (Operation.CREATE_TABLE, b"[" * 100_000),
        (Operation.RENAME_TABLE, b'{"source": []}'),
        (Operation.COMMIT_TRANSACTION, b'{"table-changes": [{}]}'),
        (Operation.COMMIT_TABLE, b'{"requirements": [1]}'),
        (Operation.CREATE_NAMESPACE, b'"text"'),
    ],
)
def test_a_malformed_request_is_left_to_the_catalog(operation, body):
    assert rule_for(Target(operation, "lake"), request("POST", "v1/lake/x", body), DEFAULT_PATHS) is ALWAYS_RUN
