"""Deleting what is left of a plan in lots, before each of which the table is loaded and compared with the lot.

Commits may come faster than anything can be compared, so no comparison has to be with the newest one. Each is with all
that was seen so far, and a lot begins while its load is young. What is committed between that load and the lot is not
seen (docs/limits.md).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile
from typing import Final

from delegation.worksets.engines.inline import Work
from delegation.worksets.errors import ComparisonTooOld

OLDEST_LOAD: Final = 30.0
"""How many seconds before a lot begins the table may have been loaded."""
MOST_SEEN: Final = 100_000
"""Files of commits that are compared lot by lot; with more, all that is left of the plan is compared once."""


def delete_in_lots(
    left: Callable[[], Sequence[Work]],
    paths: int,
    compare: Callable[[Sequence[Work]], bool],
    delete: Callable[[Sequence[Work]], None],
    *,
    now: Callable[[], float],
    most_slow: int,
) -> None:
    """Delete what is `left` of a plan, in lots of chunks with up to `paths` files together.

    `compare` loads the table, and returns whether a lot may be deleted; if not, what is left is another plan, or
    nothing. Raises ComparisonTooOld after `most_slow` comparisons in a row that took too long.
    """
    tried: set[tuple[str, str]] = set()
    work, slow = left(), 0
    while work:
        lot = _first(work, paths)
        began = now()
        if compare(lot):
            young = OLDEST_LOAD - (now() - began)
            try:
                if young > 0:
                    delete([replace(one, not_after=time.time() + young) for one in lot])
                    tried.update(map(_name, lot))
                    work, slow = work[len(lot) :], 0
                    continue
            except ComparisonTooOld:
                pass  # executors were not there in time, but may be now
            slow += 1
            if slow >= most_slow:
                raise ComparisonTooOld(
                    f"{slow} times in a row, what was committed to the table could not be compared with the files to "
                    f"delete within {OLDEST_LOAD:.0f} s of a load; the rest is left to the next attempt"
                )
        work = [one for one in left() if _name(one) not in tried]


def _first(work: Sequence[Work], paths: int) -> Sequence[Work]:
    sums = accumulate(one.chunk.count for one in work)
    return work[: max(1, sum(1 for _ in takewhile(lambda files: files <= paths, sums)))]


def _name(work: Work) -> tuple[str, str]:
    return work.index.plan_id, work.chunk.name
