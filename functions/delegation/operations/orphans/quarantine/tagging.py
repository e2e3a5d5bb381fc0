"""Tagging orphan files for a lifecycle rule of the bucket instead of deleting them, and taking the tag away again.

A batch of files is tagged by the rules of a conditional delete: what is not as it was listed stays as it is. Nothing is
recorded of a file: a restore looks at every file of the plans, so that it also finds what an attempt that died tagged.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from delegation.operations.orphans.index import Candidate, OrphanIndex, read_candidates
from delegation.operations.orphans.restoring import FileState, Restoration
from delegation.removal.errors import PlanLost, PlanTampered
from delegation.removal.index import load_index_as, segment_of
from delegation.storage.base import BatchResult, KeyFailure, PlanStore
from delegation.storage.listing.model import GONE, ListedObject, TagFound, TagStore
from delegation.storage.locations import Root, split
from polaris_common.errors import DelegationError

_AT_A_TIME: Final = 8
"""Files that are tagged at a time, within one batch; each takes four requests."""
_RESTORED_AT_A_TIME: Final = 16
_BATCH: Final = 256
"""Files between two checkpoints of a restore."""
_STATES: Final[Mapping[TagFound, FileState]] = {
    TagFound.TAGGED: FileState.RESTORED,
    TagFound.UNTAGGED: FileState.PRESENT,
    TagFound.CHANGED: FileState.REWRITTEN,
    TagFound.ABSENT: FileState.GONE,
}


def tag_batch(store: TagStore, bucket: str, listed: Sequence[ListedObject]) -> BatchResult:
    """Tag objects that are as they were listed; return those that have the tag now in place of deleted ones.

    Those that are gone count as absent. The codes of failures are CHANGED, TAGS_FULL and those of a delete.
    """
    with ThreadPoolExecutor(min(_AT_A_TIME, len(listed)), thread_name_prefix="tag") as pool:
        codes = list(pool.map(lambda one: store.tag(bucket, one), listed))
    done = list(zip((one.key for one in listed), codes, strict=True))
    absent = tuple(key for key, code in done if code == GONE)
    tagged = tuple(key for key, code in done if code is None)
    failed = tuple(KeyFailure(key, code) for key, code in done if code not in (None, GONE))
    return BatchResult((*tagged, *absent), failed, absent=absent)


@dataclass(frozen=True)
class UntagRun:
    """Takes the tag away from the files of a removal's plans at `location`; `store` has an operator's credentials.

    With `by_location` the plans are of any removals: what they have elsewhere is left alone, and those that expired are
    left out. `checkpoint` is called before each batch, and may raise RunStopped. A call after an interruption looks at
    every file again.
    """

    store: TagStore
    plans: PlanStore
    plan_ids: Sequence[str]
    location: str
    dry_run: bool = False
    by_location: bool = False
    checkpoint: Callable[[], None] = lambda: None

    def run(self) -> Restoration:
        """Take the tags away, with `dry_run` only look.

        Raises PlanLost, PlanTampered and the errors of the stores where nothing else was found, else they are in the
        result.
        """
        found = Restoration()
        files = self._files(found)
        with ThreadPoolExecutor(_RESTORED_AT_A_TIME, thread_name_prefix="untag") as pool:
            while batch := list(islice(files, _BATCH)):
                self.checkpoint()
                found.add_each(batch, self._file, pool, lambda one: one, name="orphans.untagged")
        found.check()
        return found

    def _files(self, found: Restoration) -> Iterator[Candidate]:
        """Yield each file of the plans once; a plan that was reduced has files of the one that replaced it."""
        root = Root.of(self.location)
        streams = [self._planned(plan_id, found) for plan_id in self.plan_ids]
        for path, same in groupby(merge(*streams, key=attrgetter("path")), key=attrgetter("path")):
            if not path.startswith(root.uri):
                if self.by_location:
                    continue
                raise PlanTampered(self.plan_ids[-1], f"it has files outside {root.uri}")
            yield next(same)

    def _planned(self, plan_id: str, found: Restoration) -> Iterator[Candidate]:
        """Yield the files of a plan, without the chunks that cannot be read."""
        try:
            index = load_index_as(OrphanIndex, self.plans, segment_of(self.plans, plan_id))
        except DelegationError as error:
            if not (self.by_location and isinstance(error, PlanLost)):
                found.fail(plan_id, error)
            return
        for chunk in index.chunks:
            try:
                yield from read_candidates(self.plans, plan_id, chunk)
            except DelegationError as error:
                found.fail(plan_id, error)

    def _file(self, one: Candidate) -> FileState:
        bucket, _ = split(one.path)
        return _STATES[self.store.untag(bucket, one.listed(), dry_run=self.dry_run)]
