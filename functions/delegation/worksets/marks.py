"""Progress of a plan, stored as marks beside it; each is an object with one writer."""

import gzip
import json
from collections.abc import Iterable

from delegation.storage.base import PlanStore
from delegation.worksets.chunks import Chunk
from delegation.worksets.index import INDEX

_ROOT_NEXT = "ROOT-NEXT"
_VERSIONED = "VERSIONED"
_ADOPTED = "taken"


class Marks:
    """The marks of a plan. A chunk is marked done when the store confirmed the delete of every key."""

    def __init__(self, store: PlanStore, plan_id: str) -> None:
        self._store = store
        self._plan_id = plan_id

    def done(self) -> frozenset[str]:
        """Return the names of the chunks that are done."""
        prefix = f"{self._plan_id}/done/"
        names = (key.removeprefix(prefix) for key in self._store.keys(prefix))
        return frozenset(names) - {_ROOT_NEXT}

    def mark_done(self, chunk: Chunk) -> None:
        self._store.put(f"{self._plan_id}/done/{chunk.name}", b"{}\n")

    def begun(self) -> bool:
        """Return whether the execution of the plan left any mark or failure."""
        prefixes = (f"{self._plan_id}/{name}/" for name in ("done", "failed"))
        return any(True for prefix in prefixes for _ in self._store.keys(prefix))

    def root_is_next(self) -> bool:
        """Return whether some attempt began the ROOT phase, after everything else was deleted."""
        return self._has(f"done/{_ROOT_NEXT}")

    def mark_root_next(self) -> None:
        self._store.put(f"{self._plan_id}/done/{_ROOT_NEXT}", b"{}\n")

    def versioned(self) -> bool:
        """Return whether deletes of some attempt wrote delete markers."""
        return self._has(_VERSIONED)

    def mark_versioned(self) -> None:
        self._store.put(f"{self._plan_id}/{_VERSIONED}", b"{}\n")

    def _has(self, name: str) -> bool:
        key = f"{self._plan_id}/{name}"
        return key in set(self._store.keys(key))

    def keep_failures(self, chunk: Chunk, failures: Iterable[tuple[str, str]]) -> None:
        """Store the paths that were not deleted, as (path, code), in `failed/{chunk}`, for operators."""
        lines = "".join(json.dumps({"path": path, "code": code}, ensure_ascii=False) + "\n" for path, code in failures)
        self._store.put(f"{self._plan_id}/failed/{chunk.name}", gzip.compress(lines.encode(), mtime=0))


def record_adopted_plan(store: PlanStore, task_id: str, plan_id: str) -> None:
    """Record that a task executes the plan of a dry run, which is stored below that run's id."""
    store.put(f"{task_id}/{_ADOPTED}/{plan_id}", b"{}\n")


def plan_ids(store: PlanStore, task_id: str) -> list[str]:
    """Return every plan that a task made, published or not, or adopted from a dry run."""
    adopted, suffix = f"{task_id}/{_ADOPTED}/", f"/{INDEX}"
    keys = list(store.keys(f"{task_id}/"))
    made = [key.removesuffix(suffix) for key in keys if key.endswith(suffix)]
    return made + [key.removeprefix(adopted) for key in keys if key.startswith(adopted)]
