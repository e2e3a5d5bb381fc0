"""When to look anew at a table that does not change. Pure, and light to import."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

REVIEW_WITHIN: Final = timedelta(days=30)
REVIEW_EVERY: Final = timedelta(days=1)
_REVIEW_STEP: Final = timedelta(minutes=10)

Expirable = Callable[[Mapping[str, Any], datetime], Collection[int]]
"""The snapshots of parsed metadata that a rule expires at a time; more of them the later it is."""


def review_at(document: Mapping[str, Any], expirable: Expirable, now: datetime, *, found: bool) -> datetime:
    """Return when to look anew at a table that does not change, because its snapshots grow older.

    Where nothing expires yet: when the first one will, within REVIEW_WITHIN; else in a day.
    """
    if found:
        return now + REVIEW_EVERY
    early, late = 0, REVIEW_WITHIN // _REVIEW_STEP
    if not expirable(document, now + REVIEW_WITHIN):
        return now + REVIEW_WITHIN
    while late - early > 1:
        middle = (early + late) // 2
        if expirable(document, now + middle * _REVIEW_STEP):
            late = middle
        else:
            early = middle
    return now + late * _REVIEW_STEP
