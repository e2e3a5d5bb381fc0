"""Which commits of Spark pass the fence, what they carry then, and which commits of a table are a task's own."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from delegation.polaris.model import read_large
from delegation.rewrites.commits import (
    ATTEMPT,
    TASK_ID,
    AdmittedCommit,
    CommitRules,
    OwnCommit,
    admitted,
    is_applied,
    own_commits,
)
from delegation.rewrites.errors import CommitRefused, RewriteError

UUID = "7f3b5f0e-54ad-4a0a-9d2a-3f1f6c9ce001"
RULES = CommitRules(UUID, "main", "task-1", 3)
REPLACED: dict[str, Any] = {
    "identifier": {"namespace": ["sales"], "name": "orders"},
    "requirements": [
        {"type": "assert-table-uuid", "uuid": UUID},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 9_007_199_254_740_993},
    ],
    "updates": [
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": 9_107_199_254_740_995,
                "parent-snapshot-id": 9_007_199_254_740_993,
                "sequence-number": 4,
                "timestamp-ms": 1,
                "manifest-list": "s3://lake/orders/metadata/snap-2.avro",
                "summary": {"operation": "replace", "added-data-files": "1"},
            },
        },
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 9_107_199_254_740_995},
    ],
}


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = copy.deepcopy(REPLACED)
    change(document)
    return json.dumps(document).encode()


def test_a_replacement_passes_with_the_marks_of_its_attempt_and_nothing_else_changed() -> None:
    commit = admitted(json.dumps(REPLACED).encode(), RULES)
    assert commit.snapshot_id == 9_107_199_254_740_995
    expected = copy.deepcopy(REPLACED)
    expected["updates"][0]["snapshot"]["summary"] |= {TASK_ID: "task-1", ATTEMPT: "3"}
    assert commit.document == expected


def test_a_mark_of_another_attempt_is_replaced() -> None:
    body = changed(lambda one: one["updates"][0]["snapshot"]["summary"].update({TASK_ID: "another", ATTEMPT: "9"}))
    summary = admitted(body, RULES).document["updates"][0]["snapshot"]["summary"]
    assert (summary[TASK_ID], summary[ATTEMPT]) == ("task-1", "3")


def _snapshot(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["updates"][0]["snapshot"]
    return found


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "an append": (lambda one: _snapshot(one)["summary"].update(operation="append"), "append"),
    "an overwrite": (lambda one: _snapshot(one)["summary"].update(operation="overwrite"), "overwrite"),
    "no operation": (lambda one: _snapshot(one)["summary"].pop("operation"), "not None"),
    "no summary": (lambda one: _snapshot(one).pop("summary"), "without a summary"),
    "removed snapshots": (
        lambda one: one["updates"].append({"action": "remove-snapshots", "snapshot-ids": [1]}),
        "this commit has add-snapshot, set-snapshot-ref, remove-snapshots",
    ),
    "a property": (
        lambda one: one["updates"].append({"action": "set-properties", "updates": {"a": "b"}}),
        "set-properties",
    ),
    "a second snapshot": (lambda one: one["updates"].append(one["updates"][0]), "add-snapshot"),
    "no ref": (lambda one: one["updates"].pop(), "this commit has add-snapshot"),
    "no update": (lambda one: one["updates"].clear(), "no update"),
    "another branch": (
        lambda one: one["updates"][1].update({"ref-name": "audit"}),
        "moves the branch audit, not the branch main",
    ),
    "a tag": (lambda one: one["updates"][1].update(type="tag"), "moves the tag main, not the branch main"),
    "a rollback": (
        lambda one: one["updates"][1].update({"snapshot-id": 9_007_199_254_740_993}),
        "does not move the branch to the snapshot",
    ),
    "another table": (lambda one: one["requirements"][0].update(uuid="0" * 36), "not for the table"),
    "no table": (lambda one: one["requirements"].pop(0), "not for the table"),
    "no branch asserted": (lambda one: one["requirements"].pop(), "main is at the snapshot's parent"),
    "another parent": (
        lambda one: _snapshot(one).update({"parent-snapshot-id": 5}),
        "main is at the snapshot's parent",
    ),
    "no parent": (lambda one: _snapshot(one).pop("parent-snapshot-id"), "main is at the snapshot's parent"),
    "updates that are none": (lambda one: one.update(updates={"a": 1}), "^updates "),
    "requirements that are none": (lambda one: one.update(requirements=[1]), "^requirements "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_any_other_commit_is_refused(name: str) -> None:
    change, message = REFUSED[name]
    with pytest.raises(CommitRefused, match=message):
        admitted(changed(change), RULES)


def test_a_branch_that_was_deleted_meanwhile_is_not_created_again() -> None:
    """Iceberg commits again after a conflict; it then asserts that there is no such branch."""

    def gone(document: dict[str, Any]) -> None:
        document["requirements"][1].update({"ref": "audit", "snapshot-id": None})
        document["updates"][1].update({"ref-name": "audit"})

    with pytest.raises(RewriteError, match="no branch audit") as refused:
        admitted(changed(gone), replace(RULES, branch="audit"))
    assert refused.value.code == "BRANCH_NOT_FOUND"


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_commit_is_refused(body: bytes) -> None:
    with pytest.raises(CommitRefused, match="JSON object"):
        admitted(body, RULES)


def _metadata(*summaries: dict[str, str] | None) -> dict[str, Any]:
    return {
        "snapshots": [
            {"snapshot-id": number, **({} if summary is None else {"summary": summary})}
            for number, summary in enumerate(summaries, start=1)
        ]
    }


def test_own_commits_are_those_of_the_task_from_an_attempt_on_with_their_figures() -> None:
    own = {TASK_ID: "task-1", "operation": "replace", "added-data-files": "2", "engine-name": "spark"}
    metadata = _metadata(
        None, own | {ATTEMPT: "1"}, own | {ATTEMPT: "3"}, own | {TASK_ID: "other", ATTEMPT: "3"}, own | {ATTEMPT: "x"}
    )
    found = own_commits(metadata, "task-1", first_attempt=2)
    assert [(one.snapshot_id, one.attempt, one["added-data-files"], one["absent"]) for one in found] == [(3, 3, 2, 0)]
    assert [one.snapshot_id for one in own_commits(metadata, "task-1")] == [2, 3]
    assert own_commits({}, "task-1") == []


def test_the_marks_are_kept_when_large_metadata_is_read() -> None:
    own = {TASK_ID: "task-1", ATTEMPT: "1", "operation": "replace", "added-data-files": "2"}
    metadata = {"current-snapshot-id": 2} | _metadata(own, {"operation": "append", "added-data-files": "5"})
    kept = read_large([json.dumps({"metadata": metadata}).encode()])["metadata"]
    assert own_commits(kept, "task-1") == own_commits(metadata, "task-1")
    assert kept["snapshots"][1]["summary"] == {"operation": "append"}


def history(head: int | None, *snapshots: tuple[int, int | None]) -> dict[str, Any]:
    refs = {} if head is None else {"main": {"snapshot-id": head, "type": "branch"}}
    return {
        "refs": refs,
        "current-snapshot-id": head,
        "snapshots": [{"snapshot-id": one, "parent-snapshot-id": parent} for one, parent in snapshots],
    }


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (history(1, (1, None)), False),
        (history(2, (1, None), (2, 1)), True),
        (history(1, (1, None), (2, 1)), True),
        (history(4, (1, None), (3, 1), (4, 3)), False),
        (history(4, (3, 1), (4, 3)), False),
        (history(3, (1, None), (2, 1), (3, 2)), True),
        (history(3, (3, 2)), True),
        (history(4, (4, 3)), None),
        (history(4, (1, None), (4, 3)), None),
        (history(9, (9, None)), None),
        (history(8, (8, 9), (9, 8)), None),
        (history(None), None),
    ],
    ids=[
        "at the parent",
        "applied",
        "applied and rolled back",
        "another was first",
        "another was first and the parent is expired",
        "another followed",
        "another followed and both were expired",
        "what followed the parent is expired",
        "what followed the parent is expired alone",
        "a table of the same name",
        "a circle",
        "the branch is gone",
    ],
)
def test_a_commit_is_found_by_the_history_of_its_branch(metadata: dict[str, Any], expected: bool | None) -> None:
    assert is_applied(metadata, AdmittedCommit({}, 2, 1, OwnCommit(2, 1, {})), "main") is expected


def test_a_branch_that_is_gone_has_not_the_history_of_the_main_one() -> None:
    assert is_applied(history(1, (1, None)), AdmittedCommit({}, 2, 1, OwnCommit(2, 1, {})), "audit") is None
