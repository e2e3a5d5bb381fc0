"""The SHA-256 of all that a purge deletes, as one sorted list: what an auditor can compute from the chunks himself.

zcat DATA-* META-* ROOT-* | jq -r .path | LC_ALL=C sort | sha256sum
"""

import gzip
import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from delegation.purge.objectstore import PlanStore
from delegation.purge.plan import Chunk, Phase, PlanIndex, read_verified, sorted_runs

_BEFORE = '{"path": "'
_AFTER = '", "type": "'
_AT_ONCE = 4_096


def paths_digest(store: PlanStore, indexes: Sequence[PlanIndex]) -> str:
    """SHA-256 (hex) of every planned path that is not kept, in UTF-8, sorted, each with a newline behind it.

    Memory is bounded by a chunk for each sorted run. Raises PlanTampered.
    """
    digest = hashlib.sha256()
    merged = planned_in_order(store, indexes)
    while some := list(islice(merged, _AT_ONCE)):
        digest.update(("\n".join(some) + "\n").encode())
    return digest.hexdigest()


def planned_in_order(store: PlanStore, indexes: Sequence[PlanIndex]) -> Iterator[str]:
    """Every planned path that is not kept, sorted; raises PlanTampered."""
    kinds = (Phase.DATA, Phase.META, Phase.ROOT)
    runs = [run for index in indexes for kind in kinds for run in sorted_runs(index, kind)]
    return heapq.merge(*(_paths(store, plan_id, chunks) for plan_id, chunks in runs))


def _paths(store: PlanStore, plan_id: str, chunks: Iterable[Chunk]) -> Iterator[str]:
    for chunk in chunks:
        text = gzip.decompress(read_verified(store, plan_id, chunk)).decode()
        for line in text.rstrip("\n").split("\n"):
            # Nearly every line needs no JSON reader: without an escape the path is what stands between the quotes.
            path, found, _ = line.removeprefix(_BEFORE).partition(_AFTER)
            if found and "\\" not in path and line.startswith(_BEFORE):
                yield path
            else:
                yield json.loads(line)["path"]
