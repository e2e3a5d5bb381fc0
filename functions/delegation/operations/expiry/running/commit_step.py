"""The commit of an expiry: sending it, following the commits of others, and answers that state nothing."""

from dataclasses import asdict

from delegation.keeping.paths import check_can_delete
from delegation.operations.expiry.commits import removal
from delegation.operations.expiry.committing import Unanswered, lacks_any, still_expired
from delegation.operations.expiry.errors import commit_refused, commits_forestalled
from delegation.operations.expiry.index import ExpiryIndex, Removal
from delegation.operations.expiry.notes import OwnCommit
from delegation.operations.expiry.planning.plan import covered_of
from delegation.operations.expiry.retention import Expired
from delegation.operations.expiry.running.executed_plan import ExecutedPlan
from delegation.operations.expiry.running.looks import TableLooks
from delegation.polaris.errors import (
    CommitConflict,
    PolarisError,
    PolarisOutcomeUnknown,
    PolarisUnavailable,
    PolarisUnexpectedAnswer,
)
from delegation.polaris.model import LoadedTable


class CommitStep:
    """Removes from the table what its plan states."""

    def __init__(self, looks: TableLooks, plan: ExecutedPlan) -> None:
        self._looks = looks
        self._plan = plan

    def commit(self) -> Removal | None:
        """Remove from the table what is still expired of the plan; return what of it is gone, None if nothing is.

        A commit of another is followed by a new decision: of the plan, only what is still expired goes. An answer that
        states nothing is followed by a load. Raises ExpiryError (COMMIT_REFUSED, COMMITS_FORESTALLED) and the errors of
        the catalog.
        """
        ctx, index, notes = self._looks.ctx, self._plan.index, self._plan.notes
        own = notes.get(OwnCommit)
        if own is not None:
            return own.removed or Removal(snapshot_ids=own.snapshot_ids)
        unanswered = Unanswered(ctx, notes)
        for _ in range(ctx.settings.most_commits):
            table = self._looks.load()
            if not self._looks.permit(table):
                return self._ended_without(index, table, unanswered)
            gone = still_expired(self._looks.ctx, index, table)
            if not gone:
                return self._ended_without(index, table, unanswered)
            covered = covered_of(ctx, table)
            if ctx.settings.probe and covered is not None:
                check_can_delete(ctx.store, covered.uris)
            ctx.attempt.checkpoint()
            self._plan.begin()
            is_followed, removed = self._sent(index, table, gone, unanswered)
            if not is_followed:
                return removed
        if unanswered.may_be_applied(table):
            raise unanswered.error()
        raise commits_forestalled(ctx.identifier, ctx.settings.most_commits)

    def _sent(
        self, index: ExpiryIndex, table: LoadedTable, gone: Expired, unanswered: Unanswered
    ) -> tuple[bool, Removal | None]:
        """Send one commit; return whether another commit was first, and if not what `commit` returns."""
        ctx, commit = self._looks.ctx, removal(table.metadata, gone)
        unanswered.sending(table)
        try:
            after = ctx.commits.commit_table(ctx.identifier, commit.requirements, commit.updates)
        except CommitConflict:
            unanswered.refused()
            return True, None
        except PolarisUnavailable as error:
            if not isinstance(error, PolarisOutcomeUnknown):
                unanswered.refused()
            now = self._looks.load()
            if still_expired(ctx, index, now):
                raise
            return False, self._ended_without(index, now, unanswered)
        except PolarisError as error:
            unanswered.refused()
            if isinstance(error, PolarisUnexpectedAnswer):
                # Iceberg refuses to remove more snapshots than there are: another expiry may have been first.
                table = self._looks.load()
                if still_expired(ctx, index, table) != gone:
                    return True, None
            if unanswered.may_be_applied(table):
                raise
            raise commit_refused(ctx.identifier, error) from error
        return False, self._record(gone, table, after)

    def _ended_without(self, index: ExpiryIndex, table: LoadedTable, unanswered: Unanswered) -> Removal | None:
        """Return what of the plan is gone, None if the table has all of it as planned.

        Raises PolarisOutcomeUnknown if an earlier commit may still be applied.
        """
        if lacks_any(index, table):
            return index.removal.gone_from(table.metadata)
        if unanswered.may_be_applied(table):
            raise unanswered.error()
        return None

    def _record(self, gone: Expired, before: LoadedTable, after: LoadedTable) -> Removal:
        """Note that the commit was made, and which metadata file is from before it: the last one in its log."""
        log = after.metadata.get("metadata-log") or ()
        previous = str(log[-1]["metadata-file"]) if log else before.metadata_location
        removed = Removal.of(before.metadata, gone)
        note = OwnCommit(
            metadata_location=after.metadata_location,
            before=previous,
            snapshot_ids=removed.snapshot_ids,
            retention=asdict(self._looks.ctx.retention),
            removed=removed,
        )
        self._plan.notes.put(note)
        return removed
