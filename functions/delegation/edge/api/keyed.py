"""Changing one task at most once for each idempotency key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from delegation.edge.api.endpoints import Endpoint
from delegation.edge.api.routes import record_of
from delegation.edge.problems import problem_of
from delegation.idempotency.canonical import Scope, payload_hashes, unread_body
from delegation.idempotency.mutations.answer import MutationAnswer
from delegation.idempotency.mutations.service import How, Mutation, MutationAttempt, Mutations, Performed
from delegation.tasks.errors import TaskNotFound
from delegation.tasks.life.model import Task
from delegation.tasks.work.parts.reads import TaskReads
from delegation.wire.responses import render_json
from polaris_common.errors import DelegationError

_ROWS: Final = 100


@dataclass(frozen=True, slots=True)
class KeyedChange:
    """A request to change a task; `body` is its text, which the operation itself does not read.

    `change` makes the change and returns the task. `did` is given the status that was first observed and a version that
    followed, or the present one, and returns whether that version shows the change.
    """

    caller: str
    realm: str
    endpoint: Endpoint
    task_id: str
    key: str
    body: str
    change: Callable[[], Task]
    did: Callable[[str, Task], bool]


def once(mutations: Mutations, reads: TaskReads, request: KeyedChange) -> Performed:
    """Make the change once for its key, or return the stored answer.

    Raises KeyConflict, MutationInProgress, the errors of the stores, and the refusal of a change that is made now; it
    is stored for the repeats.
    """
    refusals: list[DelegationError] = []

    def run(_attempt: MutationAttempt) -> MutationAnswer:
        try:
            return _recorded(reads, request.change())
        except DelegationError as error:
            problem = problem_of(error)
            if problem.status >= 500:
                raise
            refusals.append(error)
            return MutationAnswer(problem.status, problem.body)

    performed = mutations.perform(
        Mutation(
            scope=Scope(
                request.caller,
                request.realm,
                request.endpoint.method,
                request.endpoint.path.replace("{taskId}", request.task_id),
                request.key,
            ),
            payload_hash=payload_hashes(unread_body(request.body)),
            run=run,
            verify=lambda attempt: _verified(reads, request, attempt),
            observe=lambda: _observed(reads, request.task_id),
        )
    )
    if refusals and performed.how is How.EXECUTED:
        raise refusals[-1]
    return performed


def _recorded(reads: TaskReads, task: Task) -> MutationAnswer:
    return MutationAnswer(200, render_json(record_of(reads, task)))


def _observed(reads: TaskReads, task_id: str) -> str | None:
    try:
        task = reads.get(task_id)
    except TaskNotFound:
        return None
    return f"{task.version} {task.status}"


def _verified(reads: TaskReads, request: KeyedChange, attempt: MutationAttempt) -> MutationAnswer | None:
    """Return the answer if a version after the observed one, or the present one, shows the change."""
    if attempt.before is None:
        return None
    version, _, status = attempt.before.partition(" ")
    head = reads.get(request.task_id)
    rows = reads.versions(request.task_id, after=int(version), limit=_ROWS)
    for row in (*rows, head):
        if request.did(status, row):
            return _recorded(reads, head if head.version == row.version else row)
    return None
