"""The commits of a rewrite: which ones are allowed, their marks, and their results. A mark is in the snapshot's
summary. A commit whose answer was lost is found by it in the table, by this attempt or the next."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delegation.polaris.model import MARK
from delegation.rewrites.errors import CommitRefused, branch_not_found
from delegation.rewrites.terms import MAIN
from polaris_common.errors import printable

TASK_ID: Final = MARK
ATTEMPT: Final = "delegation.attempt"
_REPLACE: Final = "replace"
"""The operation of a snapshot with the same rows as its parent (Iceberg Table Spec, Snapshots)."""


@dataclass(frozen=True, slots=True)
class CommitRules:
    """What a commit of one attempt must have: the table, the branch, and as marks the task and the attempt."""

    table_uuid: str
    branch: str
    task_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AdmittedCommit:
    """A CommitTableRequest that may be sent (Iceberg REST specification), the snapshot that it adds, and its parent.
    `own` is the commit once it is applied."""

    document: Mapping[str, Any]
    snapshot_id: int
    parent_id: int
    own: "OwnCommit"


def admitted(body: bytes, rules: CommitRules) -> AdmittedCommit:
    """Return the commit to send for Iceberg's request, with its marks. Raises CommitRefused, and RewriteError
    (BRANCH_NOT_FOUND) for one that would create the branch.

    A commit must add one snapshot that replaces files of its parent by others with the same rows, and move the branch
    from that parent to it. Its requirements state where the branch was, so no other writer's commit is undone.
    """
    document = _object(body)
    requirements, updates = _objects(document, "requirements"), _objects(document, "updates")
    actions = [str(update.get("action")) for update in updates]
    if sorted(actions) != ["add-snapshot", "set-snapshot-ref"]:
        raise CommitRefused(
            f"a rewrite may only add a snapshot and move its branch, but this commit has {_named(actions)}"
        )
    added, moved = sorted(updates, key=lambda update: str(update["action"]))
    snapshot = added.get("snapshot")
    if not isinstance(snapshot, dict) or not isinstance(summary := snapshot.get("summary"), dict):
        raise CommitRefused("the commit adds a snapshot without a summary")
    snapshot_id = snapshot.get("snapshot-id")
    if not isinstance(snapshot_id, int) or moved.get("snapshot-id") != snapshot_id:
        raise CommitRefused("the commit does not move the branch to the snapshot that it adds")
    if summary.get("operation") != _REPLACE:
        operation = printable(str(summary.get("operation")))
        raise CommitRefused(f"a rewrite's snapshot must have the operation {_REPLACE}, not {operation}")
    if moved.get("type") != "branch" or moved.get("ref-name") != rules.branch:
        ref = f"{printable(str(moved.get('type')))} {printable(str(moved.get('ref-name')))}"
        raise CommitRefused(f"the commit moves the {ref}, not the branch {printable(rules.branch)}")
    parent_id = _parent_in(requirements, snapshot.get("parent-snapshot-id"), rules)
    marked = {**summary, TASK_ID: rules.task_id, ATTEMPT: str(rules.attempt)}
    return AdmittedCommit(
        {
            **document,
            "requirements": requirements,
            "updates": [{**added, "snapshot": {**snapshot, "summary": marked}}, moved],
        },
        snapshot_id,
        parent_id,
        OwnCommit(snapshot_id, rules.attempt, _metrics(summary)),
    )


def _parent_in(requirements: list[dict[str, Any]], parent: Any, rules: CommitRules) -> int:
    uuids = [
        str(requirement.get("uuid")).lower()
        for requirement in requirements
        if requirement.get("type") == "assert-table-uuid"
    ]
    if uuids != [rules.table_uuid.lower()]:
        raise CommitRefused(f"the commit is not for the table with the UUID {rules.table_uuid}")
    asserted = [
        requirement.get("snapshot-id")
        for requirement in requirements
        if requirement.get("type") == "assert-ref-snapshot-id" and requirement.get("ref") == rules.branch
    ]
    if asserted == [None] and rules.branch != MAIN:
        # The branch was deleted, and Iceberg has loaded the table again.
        raise branch_not_found(rules.branch)
    if not isinstance(parent, int) or asserted != [parent]:
        raise CommitRefused(f"the commit does not require that {printable(rules.branch)} is at the snapshot's parent")
    return parent


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise CommitRefused("the commit is not a JSON object")
    return document


def _objects(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    objects = document.get(name)
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise CommitRefused(f"{name} of the commit is not a list of objects")
    return objects


def _named(actions: list[str]) -> str:
    return ", ".join(printable(action) for action in actions[:5]) or "no update"


def is_applied(metadata: Mapping[str, Any], commit: AdmittedCommit, branch: str) -> bool | None:
    """Return whether a commit is in a table's metadata. None if unknown: an expiry may have removed its snapshot after
    later ones, while its files are still used."""
    by_id = {snapshot.get("snapshot-id"): snapshot for snapshot in metadata.get("snapshots") or ()}
    if commit.snapshot_id in by_id:
        return True
    ref = (metadata.get("refs") or {}).get(branch) or {}
    at = ref.get("snapshot-id", metadata.get("current-snapshot-id") if branch == MAIN else None)
    while at != commit.parent_id and at in by_id:
        at = by_id.pop(at).get("parent-snapshot-id")
        if at == commit.snapshot_id:
            return True
    return False if at == commit.parent_id else None


@dataclass(frozen=True, slots=True)
class OwnCommit:
    """A commit of the task: its snapshot, its attempt, and the figures of its summary."""

    snapshot_id: int
    attempt: int
    metrics: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        """Return a figure of the summary, 0 if missing."""
        return self.metrics.get(name, 0)


def own_commits(metadata: Mapping[str, Any], task_id: str, *, first_attempt: int = 1) -> list[OwnCommit]:
    """Return a task's commits in a table's metadata, starting with `first_attempt`, in commit order."""
    own = []
    for snapshot in metadata.get("snapshots") or ():
        summary = snapshot.get("summary") or {}
        if summary.get(TASK_ID) != task_id or not (attempt := str(summary.get(ATTEMPT))).isdecimal():
            continue
        if int(attempt) >= first_attempt:
            own.append(OwnCommit(int(snapshot["snapshot-id"]), int(attempt), _metrics(summary)))
    return own


def _metrics(summary: Mapping[str, Any]) -> Mapping[str, int]:
    return {name: int(text) for name, text in summary.items() if isinstance(text, str) and text.isdecimal()}
