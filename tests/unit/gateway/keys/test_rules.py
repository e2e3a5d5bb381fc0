"""Each rule over states of the catalog: applied, proved not to be applied, or undecided."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.gateway.keys import commits, rules
from delegation.gateway.keys.reading import (
    MALFORMED_REQUEST,
    Applied,
    Evidence,
    Found,
    NotApplied,
    Undecided,
    VerificationRule,
)
from delegation.gateway.keys.rules import rule_for
from delegation.gateway.routing import DEFAULT_PATHS, Operation, Target
from infra.local.catalog.metadata import committed, new_metadata
from tests.effort import examples
from tests.unit.gateway.keys.mutations import SCHEMA, SELECT_2, VIEW_VERSION
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


SINCE = datetime(2026, 11, 22, tzinfo=UTC)
BEFORE, AFTER = (int(SINCE.timestamp() * 1000) + change for change in (-1, 1))


def kind(verification: Any) -> str:
    return {Applied: "applied", NotApplied: "not applied", Undecided: "undecided"}[type(verification)]


def verified(rule: VerificationRule, *states: Any, noted: Any = None) -> str:
    return kind(rule.verify(Evidence(states, SINCE, noted)))


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
    assert rules.is_as_requested(made(), wanted) is same


def test_a_table_that_evolved_is_still_as_requested():
    added = {"action": "add-schema", "schema": SCHEMA, "last-column-id": 9}
    current = {"action": "set-current-schema", "schema-id": -1}
    defaults = [
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]
    later = committed(made(), [], [added, current, *defaults], now_ms=2, previous_location="s3://b/t/metadata/0.json")
    assert rules.is_as_requested(later, CREATE)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, "undecided"),
        (found(made(**{"last-updated-ms": AFTER})), "applied"),
        (found(made(**{"last-updated-ms": BEFORE})), "undecided"),
        (
            found(made(**{"last-updated-ms": AFTER, "metadata-log": [{"metadata-file": "x", "timestamp-ms": BEFORE}]})),
            "undecided",
        ),
        (found(made(**{"last-updated-ms": AFTER, "properties": {}})), "undecided"),
    ],
)
def test_a_creation_is_applied_if_the_table_is_as_requested_and_not_older_than_the_request(state, expected):
    assert verified(rules.table_creation("v1/lake/namespaces/ns/tables", CREATE), state) == expected


def logged(*entries: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"metadata-file": f"s3://b/t/metadata/{name}.json", "timestamp-ms": at} for name, at in entries]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, "undecided"),
        (found(made()), "applied"),
        (found(made(**{"metadata-log": logged(("1", 5)), "last-updated-ms": AFTER}), "s3://b/2.json"), "applied"),
        (found(made(**{"metadata-log": logged(("1", 5)), "last-updated-ms": BEFORE}), "s3://b/2.json"), "undecided"),
        (
            found(made(**{"metadata-log": logged(("1", 5), ("2", BEFORE)), "last-updated-ms": AFTER}), "s3://b/3.json"),
            "undecided",
        ),
        (found(made(), "s3://b/t/metadata/2.json"), "undecided"),
    ],
)
def test_a_registration_is_applied_if_the_table_has_the_file_or_had_it_until_a_later_commit(state, expected):
    rule = rules.table_registration(
        "v1/lake/namespaces/ns/register", {"name": "t", "metadata-location": "s3://b/t/metadata/1.json"}
    )
    assert verified(rule, state) == expected


@pytest.mark.parametrize(
    ("location", "expected"),
    [(None, "undecided"), ("s3://b/v/metadata/1.json", "applied"), ("s3://b/v/metadata/2.json", "undecided")],
)
def test_the_registration_of_a_view_is_applied_if_it_has_the_file(location, expected):
    rule = rules.view_registration(
        "v1/lake/namespaces/ns/register-view", {"name": "v w", "metadata-location": "s3://b/v/metadata/1.json"}
    )
    assert [each.path for each in rule.after] == ["v1/lake/namespaces/ns/views/v%20w"]
    assert verified(rule, None if location is None else found({"view-uuid": ONE}, location)) == expected


def test_nothing_shows_what_became_of_a_drop_and_nothing_is_read_for_it():
    assert (verified(rules.DROP), rules.DROP.after, rules.DROP.before) == ("undecided", (), ())


@pytest.mark.parametrize(
    ("before", "destination", "expected"),
    [
        (ONE, ONE, "applied"),
        (ONE, ONE.upper(), "applied"),
        (ONE, None, "undecided"),
        (ONE, OTHER, "undecided"),
        (None, None, "undecided"),
        (None, OTHER, "undecided"),
    ],
)
def test_a_rename_follows_the_uuid(before, destination, expected):
    body = {"source": {"namespace": ["a", "b"], "name": "t"}, "destination": {"namespace": ["c"], "name": "u"}}
    rule = rules.rename(Target(Operation.RENAME_TABLE, "lake"), body, DEFAULT_PATHS.table)
    assert [each.path for each in (*rule.before, *rule.after)] == [
        "v1/lake/namespaces/a%1Fb/tables/t", "v1/lake/namespaces/c/tables/u",
    ]  # fmt: skip
    state = None if destination is None else found({"table-uuid": destination})
    noted = rule.note([None if before is None else found({"table-uuid": before})])
    assert verified(rule, state, noted=noted) == expected
    assert verified(rule, state) == "undecided"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (None, "undecided"),
        ({"a": "1", "location": "s3://b/ns/", "more": "1"}, "applied"),
        ({"a": "1", "location": "s3://b/other/"}, "undecided"),
        ({"a": "2", "location": "s3://b/ns/"}, "undecided"),
    ],
)
def test_a_namespace_is_created_if_it_is_as_requested(properties, expected):
    body = {"namespace": ["x", "ns"], "properties": {"a": "1", "location": "s3://b/ns"}}
    rule = rules.namespace_creation(Target(Operation.CREATE_NAMESPACE, "lake"), body, DEFAULT_PATHS)
    assert rule.after[0].path == "v1/lake/namespaces/x%1Fns"
    state = None if properties is None else Found(document={"namespace": ["x", "ns"], "properties": properties})
    assert verified(rule, state) == expected


def test_a_namespace_that_is_gone_was_dropped():
    rule = rules.namespace_drop("v1/lake/namespaces/ns")
    assert [verified(rule, state) for state in (None, Found(document={"namespace": ["ns"]}))] == [
        "applied",
        "undecided",
    ]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({"a": "2"}, "applied"),
        ({"a": "2", "c": "new"}, "applied"),
        ({"a": "1", "b": "1"}, "undecided"),
        ({"a": "2", "b": "1"}, "undecided"),
        (None, "undecided"),
    ],
)
def test_properties_are_set_if_all_show(now, expected):
    body = {"removals": ["b", "never"], "updates": {"a": "2"}}
    rule = rules.namespace_properties("v1/lake/namespaces/ns/properties", body)
    assert verified(rule, None if now is None else Found(document={"properties": now})) == expected


SNAPSHOTS = [
    {"snapshot-id": number, "timestamp-ms": number, "manifest-list": "s3://b/t/m", "sequence-number": number}
    for number in (1, 2)
]
WITH_SNAPSHOTS = made(
    snapshots=SNAPSHOTS,
    refs={"main": {"snapshot-id": 2, "type": "branch"}, "tag": {"snapshot-id": 1, "type": "tag"}},
    **{
        "current-snapshot-id": 2,
        "snapshot-log": [{"snapshot-id": number, "timestamp-ms": number} for number in (1, 2)],
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
WIDER = {
    "type": "struct",
    "schema-id": 1,
    "fields": [*made()["schemas"][0]["fields"], {"id": 7, "name": "more", "required": False, "type": "long"}],
}
PARTITION_STATISTICS = {"snapshot-id": 1, "statistics-path": "s3://b/n", "file-size-in-bytes": 5}
STATISTICS = {**PARTITION_STATISTICS, "file-footer-size-in-bytes": 1, "blob-metadata": []}
UPDATES: list[list[dict[str, Any]]] = [
    [{"action": "upgrade-format-version", "format-version": 3}],
    [{"action": "add-schema", "schema": WIDER, "last-column-id": 7}, {"action": "set-current-schema", "schema-id": -1}],
    [{"action": "add-spec", "spec": NEW_SPEC}, {"action": "set-default-spec", "spec-id": -1}],
    [{"action": "add-sort-order", "sort-order": NEW_ORDER}, {"action": "set-default-sort-order", "sort-order-id": -1}],
    [{"action": "set-location", "location": "s3://b/moved/"}],
    [{"action": "set-properties", "updates": {"a": "1", "owner": "you"}}],
    [{"action": "remove-properties", "removals": ["owner", "never"]}],
    [{"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1}],
    [{"action": "set-snapshot-ref", "ref-name": "new", "type": "tag", "snapshot-id": 2, "max-ref-age-ms": 9}],
    [{"action": "remove-snapshot-ref", "ref-name": "tag"}],
    [{"action": "remove-snapshots", "snapshot-ids": [1]}],
    [{"action": "set-statistics", "snapshot-id": 1, "statistics": STATISTICS}],
    [{"action": "remove-statistics", "snapshot-id": 1}],
    [{"action": "set-partition-statistics", "partition-statistics": PARTITION_STATISTICS}],
    [{"action": "remove-partition-statistics", "snapshot-id": 1}],
]
OTHERS = [
    {"action": "set-properties", "updates": {"unrelated": "1"}},
    {"action": "set-snapshot-ref", "ref-name": "unrelated", "type": "tag", "snapshot-id": 2},
]


def after(updates, base=WITH_SNAPSHOTS):
    return committed(base, [], updates, now_ms=3, previous_location="s3://b/t/metadata/0.json")


def topic(group):
    """What a group is about: two of one topic would undo each other."""
    action = group[0]["action"]
    return next((each for each in ("snapshot", "statistics", "properties") if each in action), action).replace(
        "statistics", "snapshot"
    )


def committing(updates: Any, *requirements: Any) -> VerificationRule:
    """The rule of a commit that asserts the UUID of `made()` and WITH_SNAPSHOTS, which are equal below."""
    uuid = {"type": "assert-table-uuid", "uuid": ONE.upper()}
    return commits.commit("v1/x", {"requirements": [uuid, *requirements], "updates": updates})


def table_of(**changes: Any) -> Found:
    return found({**WITH_SNAPSHOTS, "table-uuid": ONE, **changes})


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(UPDATES), min_size=1, max_size=3, unique_by=topic))
def test_a_commit_without_snapshots_is_applied_only_if_its_own_table_shows_all_of_it(groups):
    updates = [update for group in groups for update in group]
    rule = committing(updates)
    grows = {"upgrade-format-version"} & {update["action"] for update in updates}
    unchanged = "not applied" if grows else "undecided"
    assert verified(rule, table_of()) == unchanged
    assert verified(rule, found({**after(OTHERS), "table-uuid": ONE})) == unchanged
    applied = {**after(updates), "table-uuid": ONE}
    assert verified(rule, found(applied)) == "applied"
    assert verified(rule, found(after(OTHERS, applied))) == "applied"
    assert verified(rule, found({**applied, "table-uuid": OTHER})) == "undecided"
    assert verified(rule, None) == "undecided"
    assert verified(commits.commit("v1/x", {"updates": updates}), found(applied)) == "undecided"


def test_a_commit_of_which_only_a_part_shows_is_undecided():
    rule = committing([{"action": "set-properties", "updates": {"a": "1", "b": "1"}}])
    assert verified(rule, table_of(properties={"owner": "me", "a": "1", "b": "2"})) == "undecided"


def test_an_update_that_is_unknown_is_undecided():
    assert verified(committing([{"action": "of-the-future"}]), table_of()) == "undecided"


def test_a_schema_is_known_in_the_form_in_which_iceberg_writes_it():
    """Java leaves an empty list of identifiers out, sorts others, and has a space in a decimal's name."""
    price = {"id": 2, "name": "price", "required": False, "type": "decimal(9,2)", "doc": None}
    tags = {"type": "list", "element-id": 4, "element": "decimal(3,0)", "element-required": False}
    sent = {"type": "struct", "schema-id": 7, "identifier-field-ids": [], "fields": [price, {**price, "type": tags}]}
    kept = {"id": 2, "name": "price", "required": False, "type": "decimal(9, 2)"}
    stored = {
        "type": "struct",
        "schema-id": 1,
        "fields": [kept, {**kept, "type": {**tags, "element": "decimal(3, 0)"}}],
    }
    updates = [{"action": "add-schema", "schema": sent}, {"action": "set-current-schema", "schema-id": -1}]
    state = table_of(schemas=[stored], **{"current-schema-id": 1})
    assert verified(committing(updates), state) == "applied"
    updates[0] = {"action": "add-schema", "schema": {**sent, "identifier-field-ids": [2]}}
    assert verified(committing(updates), state) == "undecided"


COLUMN = {"action": "add-schema", "schema": SCHEMA, "last-column-id": 9}
FIELDS_5 = {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 5}
PARTITIONS_1000 = {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000}


@pytest.mark.parametrize(
    ("update", "requirement", "members", "expected"),
    [
        (COLUMN, FIELDS_5, {"last-column-id": 5}, "not applied"),
        (COLUMN, FIELDS_5, {"last-column-id": 9}, "undecided"),
        (COLUMN, None, {"last-column-id": 5}, "undecided"),
        ({**COLUMN, "last-column-id": 5}, FIELDS_5, {"last-column-id": 5}, "undecided"),
        ({"action": "add-spec", "spec": NEW_SPEC}, PARTITIONS_1000, {"last-partition-id": 1000}, "not applied"),
        ({"action": "add-spec", "spec": NEW_SPEC}, PARTITIONS_1000, {"last-partition-id": 1001}, "undecided"),
        ({"action": "upgrade-format-version", "format-version": 3}, None, {"format-version": 2}, "not applied"),
    ],
)
def test_a_number_that_only_grows_proves_that_a_commit_was_not_applied(update, requirement, members, expected):
    rule = committing([update], *([requirement] if requirement else []))
    assert verified(rule, table_of(**members)) == expected
    assert verified(rule, found({**WITH_SNAPSHOTS, **members, "table-uuid": OTHER})) == "undecided"


def snapshot(number: int, sequence: int, parent: int | None = None) -> dict[str, Any]:
    return {"snapshot-id": number, "sequence-number": sequence, "parent-snapshot-id": parent}


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"snapshots": [snapshot(7, 3)]}, "applied"),
        ({"snapshots": [snapshot(8, 4, parent=7)]}, "applied"),
        ({"snapshots": [], "snapshot-log": [{"snapshot-id": 7, "timestamp-ms": 1}]}, "applied"),
        ({"table-uuid": OTHER, "snapshots": [snapshot(7, 3)]}, "applied"),
        ({"snapshots": [], "last-sequence-number": 2}, "not applied"),
        ({"snapshots": [snapshot(8, 3, parent=2)], "last-sequence-number": 3}, "not applied"),
        ({"snapshots": [snapshot(8, 3)], "last-sequence-number": 3}, "undecided"),
        (
            {"snapshots": [snapshot(8, 3)], "last-sequence-number": 3,
             "snapshot-log": [{"snapshot-id": 8, "timestamp-ms": 1}]},
            "not applied",
        ),
        ({"snapshots": [snapshot(8, 4, parent=2)], "last-sequence-number": 4}, "undecided"),
        ({"snapshots": [], "last-sequence-number": 2, "format-version": 1}, "undecided"),
        ({"snapshots": [], "last-sequence-number": 2, "table-uuid": OTHER}, "undecided"),
    ],
)  # fmt: skip
def test_a_commit_with_a_snapshot_is_verified_by_its_id_and_its_sequence_number(members, expected):
    rule = committing([{"action": "add-snapshot", "snapshot": snapshot(7, 3, parent=2)}])
    state = found({**made(**{"table-uuid": ONE, "last-sequence-number": 3}), **members})
    assert (verified(rule, state), rule.before) == (expected, ())
    assert verified(rule, None) == "undecided"


@pytest.mark.parametrize(
    ("asserted", "expected"), [("main", "not applied"), ("branch", "undecided"), (None, "undecided")]
)
def test_the_first_snapshot_of_a_branch_may_have_repeated_anothers_number(asserted, expected):
    """It was applied beside the other, and then its branch was removed and it expired."""
    first = {"type": "assert-ref-snapshot-id", "ref": asserted, "snapshot-id": None}
    updates = [{"action": "add-snapshot", "snapshot": snapshot(7, 3)}]
    rule = committing(updates, *([] if asserted is None else [first]))
    state = made(**{"table-uuid": ONE, "last-sequence-number": 3, "snapshots": [snapshot(8, 3, parent=2)]})
    assert verified(rule, found(state)) == expected
    assert verified(rule, found({**state, "last-sequence-number": 2, "snapshots": []})) == "not applied"


def test_the_first_commit_of_a_staged_table_follows_its_uuid():
    body = {"requirements": [{"type": "assert-create"}], "updates": [{"action": "assign-uuid", "uuid": ONE}]}
    rule = commits.commit("v1/x", body)
    states = [None, found(made(**{"table-uuid": ONE.upper()})), found(made(**{"table-uuid": OTHER}))]
    assert [verified(rule, state) for state in states] == ["undecided", "applied", "undecided"]


def transaction(*updates):
    changes = [
        {
            "identifier": {"namespace": ["ns"], "name": name},
            "requirements": [{"type": "assert-table-uuid", "uuid": ONE}],
            "updates": [update],
        }
        for name, update in zip("tu", updates, strict=True)
    ]
    return commits.transaction(Target(Operation.COMMIT_TRANSACTION, "lake"), {"table-changes": changes}, DEFAULT_PATHS)


SNAPSHOT_7 = {"action": "add-snapshot", "snapshot": snapshot(7, 3)}
SET = {"action": "set-properties", "updates": {"a": "1"}}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"snapshots": [snapshot(7, 3)]}, {"properties": {"a": "overwritten since"}}, "applied"),
        ({}, {}, "not applied"),
        ({}, {"properties": {"a": "1"}}, "not applied"),
        ({"last-sequence-number": 9}, {"properties": {"a": "1"}}, "undecided"),
        ({"table-uuid": OTHER}, {"properties": {"a": "1"}}, "undecided"),
    ],
)
def test_a_transaction_follows_whichever_of_its_tables_proves_something(first, second, expected):
    states = [found(made(**{"table-uuid": ONE, **members})) for members in (first, second)]
    assert verified(transaction(SNAPSHOT_7, SET), *states) == expected


def test_a_transaction_of_properties_alone_was_applied_if_all_show():
    shows, other = (found(made(properties=properties, **{"table-uuid": ONE})) for properties in ({"a": "1"}, {}))
    assert [verified(transaction(SET, SET), shows, state) for state in (shows, other)] == ["applied", "undecided"]


VIEW = {"view-uuid": ONE, "versions": [VIEW_VERSION], "current-version-id": 1, "schemas": [SCHEMA], "properties": {}}


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (VIEW_VERSION, "applied"),
        # Polaris sets the time, and replaces the summary.
        ({**VIEW_VERSION, "timestamp-ms": AFTER, "summary": {"iceberg-version": "1"}}, "applied"),
        ({**VIEW_VERSION, "timestamp-ms": BEFORE}, "undecided"),
        ({**VIEW_VERSION, "representations": SELECT_2}, "undecided"),
    ],
)
def test_a_view_is_known_by_its_text_and_a_time_that_is_the_clients_or_later(version, expected):
    rule = rules.view_creation(
        "v1/lake/namespaces/ns/views", {"name": "v", "schema": SCHEMA, "view-version": VIEW_VERSION}
    )
    assert verified(rule, found({**VIEW, "versions": [version]})) == expected
    assert verified(rule, None) == "undecided"


NEW = {**VIEW_VERSION, "version-id": 2, "timestamp-ms": 9, "representations": SELECT_2}
OTHER_VERSION = {**NEW, "representations": [{"type": "sql", "sql": "SELECT 3", "dialect": "spark"}]}


@pytest.mark.parametrize(
    ("versions", "current", "expected"),
    [
        ([VIEW_VERSION], 1, "not applied"),
        ([VIEW_VERSION, {**NEW, "version-id": 3}], 3, "applied"),  # the catalog may give it another number
        ([VIEW_VERSION, {**NEW, "timestamp-ms": AFTER}], 2, "applied"),
        ([VIEW_VERSION, NEW, {**OTHER_VERSION, "version-id": 3}], 3, "applied"),  # and another followed
        ([VIEW_VERSION, OTHER_VERSION], 2, "undecided"),
        ([{**NEW, "version-id": 1, "timestamp-ms": BEFORE}], 1, "applied"),  # it keeps the number of an equal one
        ([VIEW_VERSION, {**NEW, "version-id": 0, "timestamp-ms": BEFORE}], 1, "undecided"),
    ],
)
def test_a_replaced_view_has_the_version_and_one_that_was_not_replaced_has_lower_numbers(versions, current, expected):
    updates = [
        {"action": "add-view-version", "view-version": NEW},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    requirements = [{"type": "assert-view-uuid", "uuid": ONE}]
    rule = rules.view_replacement("v1/lake/namespaces/ns/views/v", {"requirements": requirements, "updates": updates})
    state = {**VIEW, "versions": versions, "current-version-id": current}
    assert verified(rule, found(state)) == expected
    assert [verified(rule, each) for each in (None, found({**state, "view-uuid": OTHER}))] == ["undecided"] * 2


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
def test_of_a_malformed_request_nothing_can_be_known(operation, body):
    assert rule_for(Target(operation, "lake"), request("POST", "v1/lake/x", body), DEFAULT_PATHS) is MALFORMED_REQUEST
