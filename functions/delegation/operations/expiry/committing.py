"""What is decided around the commit of an expiry: what is still to go, and which commits may have been applied."""

from datetime import timedelta
from itertools import islice
from typing import Final

from delegation.operations.expiry.context import ExpiryContext
from delegation.operations.expiry.history import MAIN, history
from delegation.operations.expiry.index import ExpiryIndex
from delegation.operations.expiry.notes import Notes, SentCommit, SentCommits
from delegation.operations.expiry.planning.plan import decided
from delegation.operations.expiry.retention import Expired
from delegation.polaris.errors import PolarisOutcomeUnknown
from delegation.polaris.model import LoadedTable

UNANSWERED_FOR: Final = timedelta(hours=24)
"""No proxy or catalog holds a request for so long."""
_MOST_SENT: Final = 50
_MOST_REFS: Final = 100


def still_expired(ctx: ExpiryContext, index: ExpiryIndex, table: LoadedTable) -> Expired:
    """Return what of the plan the table still has, and what is expired now, too: less may be, never more.

    A ref that was made or moved since the plan is kept, although it may be too old already: a catalog would remove it
    silently with its snapshot.
    """
    planned = index.removal
    refs = {name: ref.snapshot_id for name, ref in history(table.metadata).refs.items()}
    others = {name for name, snapshot_id in refs.items() if planned.refs.get(name) != snapshot_id}
    now = decided(ctx, table, others)
    return Expired(
        now.snapshot_ids & frozenset(planned.snapshot_ids),
        frozenset(name for name in now.refs if planned.refs.get(name) == refs[name]),
        now.schema_ids & frozenset(planned.schema_ids),
        now.spec_ids & frozenset(planned.spec_ids),
    )


def lacks_any(index: ExpiryIndex, table: LoadedTable) -> bool:
    """Return whether the table has anything no more that the plan removes."""
    found = history(table.metadata)
    refs = {name: ref.snapshot_id for name, ref in found.refs.items()}
    planned = index.removal
    return (
        not set(planned.snapshot_ids) <= found.snapshots.keys()
        or any(refs.get(name) != snapshot_id for name, snapshot_id in planned.refs.items())
        or not {*planned.schema_ids} <= {*found.schema_ids}
        or not {*planned.spec_ids} <= {*found.spec_ids}
    )


class Unanswered:
    """The commits of a plan that were sent and of which no answer is known, noted beside the plan.

    One of them may be applied hours later, with a new ref that it does not know. While that is possible the plan must
    not be given up: nobody else would compare the refs.
    """

    def __init__(self, ctx: ExpiryContext, notes: Notes) -> None:
        self._ctx = ctx
        self._notes = notes

    def sending(self, table: LoadedTable) -> None:
        """Note a commit before it is sent for the table as it was loaded."""
        refs = history(table.metadata).refs
        names = [*(name for name in (MAIN,) if name in refs), *(name for name in refs if name != MAIN)]
        asserted = {name: refs[name].snapshot_id for name in islice(names, _MOST_REFS)}
        sent = (*self._sent(), SentCommit(at=self._ctx.clock(), refs=asserted))
        self._notes.put(SentCommits(commits=sent[-_MOST_SENT:]))

    def refused(self) -> None:
        """Note that the last commit was not applied."""
        self._notes.put(SentCommits(commits=self._sent()[:-1]))

    def may_be_applied(self, table: LoadedTable) -> bool:
        """Return whether one of them can still be applied to the table: every ref is where the commit asserts it."""
        now, refs = self._ctx.clock(), history(table.metadata).refs
        return any(
            now - one.at < UNANSWERED_FOR
            and all(name in refs and refs[name].snapshot_id == at for name, at in one.refs.items())
            for one in self._sent()
        )

    def error(self) -> PolarisOutcomeUnknown:
        """Return the error of an attempt that ends while one of them may still be applied."""
        return PolarisOutcomeUnknown(
            f"an earlier commit to {self._ctx.identifier} had no answer and may still be applied, so its plan is kept; "
            "the next attempt decides by the table as it is then"
        )

    def _sent(self) -> tuple[SentCommit, ...]:
        noted = self._notes.get(SentCommits)
        return () if noted is None else noted.commits
