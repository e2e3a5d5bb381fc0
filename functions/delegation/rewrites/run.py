"""One attempt to rewrite: calls Iceberg's actions behind a gate, repeats them for conflicts, and collects the result.

What an attempt did is read from the table afterwards, in which its commits have the task's mark. So the next attempt
can continue one that was killed, or whose answers were lost, without a record of its own.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from delegation.errors import RunStopped
from delegation.polaris.model import LoadedTable
from delegation.rewrites.commits import CommitRules, OwnCommit, own_commits
from delegation.rewrites.context import (
    CHANGED_FIRST,
    Performed,
    PutOff,
    Rewrite,
    RewriteContext,
    RewriteEngine,
    RewriteResult,
)
from delegation.rewrites.errors import RewriteEngineFailed, branch_not_found
from delegation.rewrites.fence import Gate, Sent
from delegation.rewrites.files import head_of
from delegation.rewrites.runtimes import check_runtime
from delegation.rewrites.terms import MAIN
from polaris_common.backoff import exponential
from polaris_common.errors import DelegationError

ROUNDS: Final = 3
"""How often an attempt calls an action while other writers are first."""
_FIRST_WAIT: Final = 2.0
_LONGEST_WAIT: Final = 30.0
_SLICE: Final = 1.0
_logger = logging.getLogger(__name__)


def wait_after(rounds: int, put_off: Sequence[PutOff]) -> float | None:
    """Return the seconds until an action is called again, None if the rest is left to the next run. Pure."""
    if rounds >= ROUNDS or not any(left.is_conflict for left in put_off):
        return None
    return exponential(rounds, _FIRST_WAIT, _LONGEST_WAIT)


def run_rewrites(
    ctx: RewriteContext,
    rewrites: Sequence[Rewrite],
    engine: RewriteEngine,
    planned_again: Callable[[], Sequence[Rewrite]],
) -> RewriteResult:
    """Perform the chosen rewrites of a table. A call after a failure rewrites the rest. After a conflict the rewrites
    are `planned_again`: files that another writer just changed are no longer cold, and wait for the next run.

    Raises what ends the attempt, RewriteError (RUNTIME_UNSOUND, REWRITE_REFUSED, BRANCH_NOT_FOUND, ENGINE_FAILED if
    nothing was done), and the errors of the catalog and of the plan store. `ctx.ended_early` gets what was committed
    before the error.
    """
    began, version = ctx.now(), engine.iceberg_version
    table = ctx.load_table()
    for rewrite in rewrites:
        check_runtime(version, rewrite, table.metadata)
    run = _Run(ctx, engine, own=list(_own(ctx, table)))
    try:
        groups_done, put_off = run.in_rounds(rewrites, planned_again)
        now = ctx.load_table()
        run.add(_own(ctx, now))
        if put_off:
            _check_branches(now, rewrites)
    except (DelegationError, RunStopped):
        if run.own:
            run.end_early(result_of(ctx, table, run.own), version)
        raise
    result = replace(result_of(ctx, table, run.own), groups_done=groups_done, put_off=put_off)
    if result.status == "NOTHING" and any(not left.is_conflict for left in result.put_off):
        raise RewriteEngineFailed(f"no group of files was rewritten: {result.put_off[0].reason}")
    result = replace(result, iceberg_version=version, seconds=ctx.now() - began, engine="spark")
    return _stored(ctx, result) if run.own else result


def _check_branches(table: LoadedTable, rewrites: Sequence[Rewrite]) -> None:
    """Raise RewriteError (BRANCH_NOT_FOUND) if the branch whose groups were put off was deleted."""
    for rewrite in rewrites:
        if rewrite.branch != MAIN and head_of(table.metadata, rewrite.branch) is None:
            raise branch_not_found(rewrite.branch)


def committed_before(ctx: RewriteContext) -> RewriteResult | None:
    """Return what former attempts of the submission committed, None if nothing. An attempt that finds nothing left to
    do needs it. Raises the errors of the catalog and of the plan store."""
    if ctx.first_attempt >= ctx.attempt.attempt:
        return None
    table = ctx.load_table()
    own = _own(ctx, table)
    return _stored(ctx, replace(result_of(ctx, table, own), engine="spark")) if own else None


def _own(ctx: RewriteContext, table: LoadedTable) -> list[OwnCommit]:
    return own_commits(table.metadata, ctx.attempt.task_id, first_attempt=ctx.first_attempt)


def result_of(ctx: RewriteContext, before: LoadedTable, own: Sequence[OwnCommit]) -> RewriteResult:
    """Return the result of the task's commits, by their summaries (Iceberg, SnapshotSummary)."""

    def total(name: str) -> int:
        return sum(commit[name] for commit in own)

    return RewriteResult(
        status="REWRITTEN" if own else "NOTHING",
        identifier=ctx.identifier,
        table_uuid=ctx.table_uuid.lower(),
        metadata_location=before.metadata_location,
        snapshot_ids=tuple(commit.snapshot_id for commit in own),
        files_rewritten=total("deleted-data-files"),
        files_added=total("added-data-files"),
        bytes_rewritten=total("removed-files-size"),
        bytes_added=total("added-files-size"),
        deletes_folded=total("removed-delete-files"),
        manifests_before=total("manifests-replaced"),
        manifests_after=total("manifests-created"),
    )


@dataclass(slots=True)
class _Run:
    """The calls of one attempt. `own` are the task's commits that the table showed or the fence got an answer for: an
    expiry may remove a snapshot before the table is read again."""

    ctx: RewriteContext
    engine: RewriteEngine
    own: list[OwnCommit]

    def in_rounds(
        self, rewrites: Sequence[Rewrite], planned_again: Callable[[], Sequence[Rewrite]]
    ) -> tuple[int, tuple[PutOff, ...]]:
        """Call the actions until no group conflicts with another writer. Returns the groups done and those put off."""
        groups_done, groups_left, rounds = 0, 0, 0
        while True:
            performed = [self._once(rewrite) for rewrite in rewrites]
            rounds += 1
            not_planned = max(0, groups_left - sum(action.groups for action in performed))
            groups_left = not_planned + sum(action.groups - action.groups_done for action in performed)
            groups_done += sum(action.groups_done for action in performed)
            put_off = tuple(left for action in performed for left in action.put_off)
            wait = wait_after(rounds, put_off)
            if not_planned:
                put_off += (PutOff(groups=not_planned, reason=CHANGED_FIRST, is_conflict=True),)
            if wait is None:
                return groups_done, put_off
            _wait(self.ctx, wait)
            rewrites = planned_again()
            if not rewrites:
                return groups_done, put_off

    def _once(self, rewrite: Rewrite) -> Performed:
        attempt = self.ctx.attempt
        rules = CommitRules(self.ctx.table_uuid.lower(), rewrite.branch, attempt.task_id, attempt.attempt)
        gate = Gate(self.ctx.identifier, rules, self.ctx.requests, self.ctx.check_before_commit)
        try:
            return self.engine.perform(gate, rewrite, attempt)
        finally:
            self.add(commit.own for commit in gate.commits if commit.own and commit.became is Sent.APPLIED)

    def add(self, commits: Iterable[OwnCommit]) -> None:
        known = {commit.snapshot_id for commit in self.own}
        self.own += [commit for commit in commits if commit.snapshot_id not in known]

    def end_early(self, result: RewriteResult, version: str) -> None:
        """Record what was committed before an error. Raises LeaseLost."""
        result = replace(result, iceberg_version=version, engine="spark")
        try:
            result = _stored(self.ctx, result)
        except DelegationError:
            # The error that ended the attempt matters more. The figures are recorded without a receipt.
            _logger.warning("a receipt was not stored", extra={"task_id": self.ctx.attempt.task_id})
        self.ctx.ended_early(result)


def _wait(ctx: RewriteContext, seconds: float) -> None:
    until = ctx.now() + seconds
    while (left := until - ctx.now()) > 0:
        ctx.attempt.checkpoint(moved=False)
        ctx.sleep(min(left, _SLICE))


def _stored(ctx: RewriteContext, result: RewriteResult) -> RewriteResult:
    """Store the receipt of what was committed. Returns the result with its key."""
    key = f"{ctx.attempt.task_id}/{ctx.attempt.attempt}/receipt.json"
    document = {
        "format": 1,
        "task_id": ctx.attempt.task_id,
        "attempt": ctx.attempt.attempt,
        "status": result.status,
        "identifier": str(result.identifier),
        "table_uuid": result.table_uuid,
        "ended_at": ctx.clock().isoformat(),
        "metadata_location_before": result.metadata_location,
        "snapshots": [str(snapshot_id) for snapshot_id in result.snapshot_ids],
        **result.figures,
        "put_off": result.put_off_documents,
        "iceberg_version": result.iceberg_version,
        "seconds": round(result.seconds, 3),
        "request": dict(ctx.request),
    }
    ctx.plans.put(key, f"{json.dumps(document, indent=1)}\n".encode())
    return replace(result, receipt=key)
