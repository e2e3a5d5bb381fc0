"""What a process gives its purges: the catalog, the files of tables, the index, and the operator's settings."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from delegation.identifiers import TableIdentifier
from delegation.keeping.catalog import Catalog
from delegation.keeping.model import TableSource
from delegation.operations.purge.behavior.limits import Limits
from delegation.operations.purge.behavior.references import ReferenceSettings
from delegation.operations.purge.settings import PurgeSettings
from delegation.polaris.model import LoadedTable
from delegation.references.store import ReferenceStore
from delegation.references.visiting.listing import GenericTables
from delegation.storage.base import PlanStore
from delegation.tasks.life.model import Task
from delegation.tasks.work.service import TaskService
from polaris_common.errors import DelegationError

if TYPE_CHECKING:
    from delegation.storage.listing.model import ListableStore


@dataclass(frozen=True)
class PurgeAccess:
    """The access of a process to tables, and the operator's settings of purges.

    `store_of` opens a table's storage with vended credentials, `store_with` with those of a table just loaded; `plans`
    is the service's plan bucket. `open_table` opens the purged table's source and storage together, so that one load
    serves both; by default they are opened apart. Without `references` only tables found by a scan are checked. A pass
    over the index has up to `loads_at_once` loads under way, if `catalog` and `references` are safe for threads. `held`
    is called with each purge that waits for a neighbour, and why, `passed` with a catalog after a complete pass of the
    recurring task. `generic_tables` finds tables of other formats.
    """

    tasks: TaskService
    catalog: Catalog
    store_of: "Callable[[TableIdentifier], ListableStore]"
    plans: PlanStore
    settings: PurgeSettings = field(default_factory=PurgeSettings)
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    limits: Limits = field(default_factory=Limits)
    references: ReferenceStore | None = None
    reference_settings: ReferenceSettings = field(default_factory=ReferenceSettings)
    loads_at_once: int = 1
    store_with: "Callable[[LoadedTable], ListableStore] | None" = None
    open_table: "Callable[[TableIdentifier], tuple[TableSource, ListableStore]] | None" = None
    generic_tables: GenericTables | None = None
    held: Callable[[Task, DelegationError], object] = lambda _task, _error: None
    passed: Callable[[str], object] = lambda _catalog: None
