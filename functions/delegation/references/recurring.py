"""The recurring task that keeps one catalog's reference index nearly up to date for purges."""

from collections import deque
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from delegation.items import each_item
from delegation.polaris.answers import PolarisUnavailable
from delegation.references import REFERENCE_INDEX
from delegation.references.errors import ReferencesError
from delegation.references.refresh import Refresher
from delegation.tasks.life.declared import is_wanted
from delegation.tasks.submit import Tasks
from delegation.tasks.work.attempt_context import AttemptContext
from delegation.tasks.work.behaviors import Behavior
from delegation.tasks.work.service import TaskService
from delegation.timestamps import isoformat


class RecurringCatalog(BaseModel):
    model_config = ConfigDict(frozen=True)

    catalog: str = Field(min_length=1)


class IndexReport(BaseModel):
    """The index after one run: its tables and the time as of which it is complete, or why it is not."""

    model_config = ConfigDict(frozen=True)

    tables: int | None = None
    complete_as_of: str | None = None
    problem: str | None = None


def reference_index(
    refresher: Callable[[AttemptContext], Refresher],
    *,
    every: timedelta,
    refreshed: Callable[[str], object] = lambda _catalog: None,
) -> Behavior[RecurringCatalog, IndexReport]:
    """Return the behavior. `refresher` is called for each run, `refreshed` with the catalog after a complete pass."""

    def work(parameters: RecurringCatalog, run: AttemptContext) -> IndexReport:
        try:
            # Half of the interval, because a purge may have made a pass shortly before.
            state = refresher(run).ensure_fresh(parameters.catalog, every / 2)
        except (ReferencesError, PolarisUnavailable) as error:
            # The next run, or a purge, continues the pass. A failure would end the recurrence.
            return IndexReport(problem=f"{error.code}: {error}")
        refreshed(parameters.catalog)
        moment = state.complete_as_of
        return IndexReport(tables=state.tables, complete_as_of=None if moment is None else isoformat(moment))

    return Behavior(
        REFERENCE_INDEX,
        RecurringCatalog,
        work,
        result=IndexReport,
        identify=lambda parameters: parameters.catalog,
        every=every,
    )


def ensure_each_submitted(
    tasks: TaskService, behavior: Behavior[RecurringCatalog, Any], catalogs: Iterable[str]
) -> None:
    """Call `ensure_submitted` for each catalog. A failure does not affect other catalogs, and is retried."""
    loop = each_item(
        catalogs,
        lambda catalog: ensure_submitted(tasks, behavior, catalog),
        name="catalogs.submitted",
        clock=tasks.clock,
        in_a_row=None,
    )
    deque(loop, 0)


def ensure_submitted(tasks: TaskService, behavior: Behavior[RecurringCatalog, Any], catalog: str) -> bool:
    """Submit a catalog's recurring task unless it exists, usually with one read; return whether this call did. A failed
    or cancelled task is submitted again one interval later."""
    parameters = RecurringCatalog(catalog=catalog)
    if not is_wanted(tasks.reads.find(behavior.task_id(parameters)), behavior.every, tasks.clock()):
        return False
    return Tasks(tasks).submit(behavior, parameters).is_new
