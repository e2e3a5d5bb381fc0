"""Expiries and removals of orphan files against a store that is wrong in one way, then against a sound one."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

from delegation.removal.attempt import PlanHead
from delegation.removal.expiry.run import expire_snapshots
from delegation.removal.orphans.run import remove_orphan_files
from delegation.storage.s3 import S3ObjectStore
from polaris_common.errors import DelegationError
from tests.faults.hostile.runs import Ended, Resources, read_seconds
from tests.faults.hostile.server import HostileStore, Way
from tests.kit.lakes.lake import identifier
from tests.kit.stories.expiries import ExpiringTables
from tests.kit.stories.orphans import SweptTables
from tests.kit.stories.tables import StoryTable

EXPIRY, REMOVAL = "expiry", "removal"
STORIES = (EXPIRY, REMOVAL)
_ORPHANS = 7
_numbers = itertools.count(1_000_000)


class StoryRun:
    """A table beside another one, and the attempts of one operation at it."""

    def __init__(self, operation: str) -> None:
        self._world: Any = SweptTables() if operation == REMOVAL else ExpiringTables()
        self._operation = operation
        lake = self._world.lake
        self._table = StoryTable.create(lake)
        for _ in range(3):
            self._table.append(2)
            self._table.delete(self._table.live()[0])
        StoryTable.create(lake, "near").append(2)
        self._goes = {lake.put(f"s3://lake/wh/t/data/orphan{number}.parquet") for number in range(_ORPHANS)}
        if operation == EXPIRY:
            self._goes = self._expired()
        else:
            lake.pass_days(4)
        self._needed = lake.uris() - self._goes

    def play(self, name: str, way: Way) -> Ended:
        """Work with the store wrong in this way, then with a sound one; return what happened."""
        ended, lake = Ended(), self._world.lake
        modified = getattr(lake, "modified", {})
        with HostileStore(lake.objects, modified, lambda: lake.now_ms / 1000) as store:
            store.set(way)
            self._attempt(ended, store, read_seconds(name), is_sound=False)
            store.set(None)
            if self._operation == REMOVAL:
                # A plan that was made of lies is not continued.
                self._world.head = PlanHead()
            self._attempt(ended, store, read_seconds(""), is_sound=True)
        read = {path for paths in lake.readable().values() for path in paths}
        ended.wrong(self._operation, "is needed and was deleted", self._needed - lake.uris() | read)
        return ended

    def _attempt(self, ended: Ended, store: HostileStore, read: float, *, is_sound: bool) -> None:
        ended.runs += 1
        ctx = self._world.context(self._table)
        opened: S3ObjectStore = Resources(store.url, next(_numbers), read).store(identifier("t"))
        work: Callable[[Any], Any] = remove_orphan_files if self._operation == REMOVAL else expire_snapshots
        try:
            work(dataclasses.replace(ctx, store=opened))
        except DelegationError as error:
            ended.problems += [f"sound again: {error.code}: {error}"] if is_sound else []
        except Exception as error:  # noqa: BLE001 - an error of no type is what is looked for
            ended.problems.append(f"{type(error).__name__} has no type of ours: {error}")
        else:
            ended.well += 1
        if is_sound:
            ended.wrong("sound again", "is left", self._goes & self._world.lake.uris())

    def _expired(self) -> set[str]:
        """Return what only the snapshots name that an expiry removes."""
        lake, document = self._world.lake, self._table.document
        *old, last = self._table.ids
        return (lake.named_by(document, old) - lake.read_by(document, [last])) & lake.uris()
