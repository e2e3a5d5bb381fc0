"""Deleting what is left of a plan in lots, before each of which the table is loaded and compared with the lot.

Commits may come faster than anything can be compared, so no comparison has to be with the newest one. Each is with all
that was seen so far, and a lot begins while its load is young. What is committed between that load and the end of the
lot is not seen (docs/limits.md).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, takewhile
from typing import Final

from delegation.worksets.engines.inline import Tally, Work
from delegation.worksets.errors import ComparisonTooOld

OLDEST_LOAD: Final = 30.0
"""How many seconds before a lot begins the table may have been loaded."""
LOT_SECONDS: Final = 10.0
"""After so many seconds no other chunk of a lot begins."""
MOST_SEEN: Final = 100_000
"""Files of commits that are compared lot by lot; with more, all that is left of the plan is compared once."""


def delete_in_lots(
    left: Callable[[], Sequence[Work]],
    paths: int,
    compare: Callable[[Sequence[Work]], bool],
    delete: Callable[[Sequence[Work], Callable[[Tally], None]], None],
    report: Callable[[Tally], None],
    *,
    now: Callable[[], float],
    most_slow: int,
) -> None:
    """Delete what is `left` of a plan: first `paths` files, then twice as many as long as a lot takes half its time.

    `compare` loads the table, and returns whether a lot may be deleted; if not, what is left is another plan, or
    nothing. Returns early if the store refuses most of a lot for now. Raises ComparisonTooOld if `most_slow` lots in a
    row did not begin.
    """
    failed: set[tuple[str, str]] = set()
    work: Sequence[Work] = ()
    most, slow, before = paths, 0, None
    while work := work or [one for one in left() if _name(one) not in failed]:
        lot, rest, first = *_parted(work, most), _name(work[0])
        slow = slow + 1 if first == before else 0
        if slow >= most_slow:
            raise ComparisonTooOld(
                f"{slow} times in a row, what was committed to the table could not be compared with the files to "
                f"delete within {OLDEST_LOAD:.0f} s of a load; the rest is left to the next attempt"
            )
        work, before, loaded = (), first, now()
        if not compare(lot):
            continue
        began = now()
        young = OLDEST_LOAD - (began - loaded)
        if young <= 0:
            continue
        run, until = Tally(), time.time() + min(young, LOT_SECONDS)
        delete([replace(one, not_after=until) for one in lot], partial(_add, run, report))
        if run.failed:
            failed.update(map(_name, lot))
        if (run.failed - run.permanent) * 2 > sum(one.chunk.count for one in lot):
            return  # the store takes next to nothing, for minutes by now; `report` has the failures
        if time.time() < until:
            work = rest  # every chunk of the lot has begun
        seconds = now() - began
        if seconds < LOT_SECONDS / 2:
            most *= 2
        elif seconds > LOT_SECONDS:
            most = max(paths, most // 2)


def _add(run: Tally, report: Callable[[Tally], None], tally: Tally) -> None:
    run.add(tally)
    report(tally)


def _parted(work: Sequence[Work], paths: int) -> tuple[Sequence[Work], Sequence[Work]]:
    """Return the first chunks with so many files together, one at least, and the others."""
    sums = accumulate(one.chunk.count for one in work)
    number = max(1, sum(1 for _ in takewhile(lambda files: files <= paths, sums)))
    return work[:number], work[number:]


def _name(work: Work) -> tuple[str, str]:
    return work.index.plan_id, work.chunk.name
