"""Write the files of a plan to chunks by phase."""

from itertools import groupby
from operator import itemgetter
from typing import Final

from delegation.iceberg.files import FIRST_DATA, Row
from delegation.storage.base import PlanStore
from delegation.worksets.chunks import Chunk, ChunkWriter, DeleteStep, Phase, Total, add_totals, step_of

_RANK: Final = itemgetter(1)


class PlanWriter:
    """Writes rows to chunks by phase; `part` separates the chunks of several writers of one plan."""

    def __init__(self, plans: PlanStore, plan_id: str, *, chunk_paths: int, part: str = "") -> None:
        def writer(kind: Phase, *, lists: bool = False) -> ChunkWriter:
            return ChunkWriter(plans, plan_id, kind, chunk_paths=chunk_paths, part=part, lists=lists)

        self._of_step = {
            DeleteStep.DATA: writer(Phase.DATA),
            DeleteStep.META: writer(Phase.META),
            DeleteStep.LISTS: writer(Phase.META, lists=True),
            DeleteStep.ROOT: writer(Phase.ROOT),
        }
        self._kept = writer(Phase.KEPT)

    def write(self, rows: list[Row], verdict: str) -> None:
        """Add rows with this verdict; rows come in sorted order over all calls."""
        if verdict:
            self._kept.extend(rows, verdict)
            return
        if min(map(_RANK, rows)) >= FIRST_DATA:
            self._of_step[DeleteStep.DATA].extend(rows)
            return
        for step, group in groupby(rows, lambda row: step_of(row[1])):
            self._of_step[step].extend(list(group))

    def close(self) -> tuple[list[Chunk], dict[str, Total]]:
        """Store the last chunks; return all chunks, and the totals by file type of what is to be deleted."""
        chunks: list[Chunk] = []
        totals: dict[str, Total] = {}
        for writer in self._of_step.values():
            writer.flush()
            chunks.extend(writer.chunks)
            add_totals(totals, {name: Total(files=n, bytes=size) for name, (n, size) in writer.totals.items()})
        self._kept.flush()
        return [*chunks, *self._kept.chunks], totals
