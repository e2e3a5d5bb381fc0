"""What has become of a plan: marks beside it, one object each, so that no two writers ever change the same one."""

import gzip
import json
from collections.abc import Iterable

from delegation.storage.base import PlanStore
from delegation.worksets.chunks import Chunk
from delegation.worksets.index import INDEX

_ROOT_NEXT = "ROOT-NEXT"
_VERSIONED = "VERSIONED"
_TAKEN = "taken"


class Marks:
    """The marks of one plan. A chunk is marked done only when the store confirmed every key of it."""

    def __init__(self, store: PlanStore, plan_id: str) -> None:
        self._store = store
        self._plan_id = plan_id

    def done(self) -> frozenset[str]:
        """Names of the chunks that are done."""
        prefix = f"{self._plan_id}/done/"
        names = (key.removeprefix(prefix) for key in self._store.keys(prefix))
        return frozenset(names) - {_ROOT_NEXT}

    def mark_done(self, chunk: Chunk) -> None:
        self._store.put(f"{self._plan_id}/done/{chunk.name}", b"{}\n")

    def root_is_next(self) -> bool:
        """Whether everything but the root was done when a former attempt, or this one, went on to the root."""
        return self._has(f"done/{_ROOT_NEXT}")

    def mark_root_next(self) -> None:
        self._store.put(f"{self._plan_id}/done/{_ROOT_NEXT}", b"{}\n")

    def versioned(self) -> bool:
        """Whether some attempt saw deletes answered with delete markers."""
        return self._has(_VERSIONED)

    def mark_versioned(self) -> None:
        self._store.put(f"{self._plan_id}/{_VERSIONED}", b"{}\n")

    def _has(self, name: str) -> bool:
        key = f"{self._plan_id}/{name}"
        return key in set(self._store.keys(key))

    def keep_failures(self, chunk: Chunk, failures: Iterable[tuple[str, str]]) -> None:
        """Leave the full list of what could not be deleted, as (path, code), for people: `failed/{chunk}`."""
        lines = "".join(json.dumps({"path": path, "code": code}, ensure_ascii=False) + "\n" for path, code in failures)
        self._store.put(f"{self._plan_id}/failed/{chunk.name}", gzip.compress(lines.encode(), mtime=0))


def note_taken(store: PlanStore, task_id: str, plan_id: str) -> None:
    """Leave word with a task that it executes a plan which a dry run made, and which lies with that run's id."""
    store.put(f"{task_id}/{_TAKEN}/{plan_id}", b"{}\n")


def plan_ids(store: PlanStore, task_id: str) -> list[str]:
    """Every plan that a task made or took, published or not."""
    taken, suffix = f"{task_id}/{_TAKEN}/", f"/{INDEX}"
    keys = list(store.keys(f"{task_id}/"))
    made = [key.removesuffix(suffix) for key in keys if key.endswith(suffix)]
    return made + [key.removeprefix(taken) for key in keys if key.startswith(taken)]
