"""The keys under which lists find tasks: all, those with a target, those with a correlation id; the newest first."""

from datetime import UTC, datetime, timedelta
from typing import Final

from delegation.tasks.life.model import Task, label_key
from delegation.tasks.stores.base import Received
from delegation.timestamps import isoformat
from polaris_persistence.index.keys import IndexKey

_RECEIVED: Final = "received"
_TARGET: Final = "target"
_CORRELATION: Final = "correlation"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FAR: Final = 10**18
"""Microseconds from 1970 to beyond the year 9999: times are subtracted from it, so that the newest sorts first."""


def keys_of(task: Task) -> list[IndexKey]:
    place = (_newest_first(task.received_timestamp), task.task_id)
    labels = ((_TARGET, task.target_key), (_CORRELATION, task.correlation_key))
    return [IndexKey.of(_RECEIVED, *place), *(IndexKey.of(name, key, *place) for name, key in labels if key)]


def range_of(which: Received, before: str | None) -> tuple[IndexKey, IndexKey | None, IndexKey]:
    """Return where a list starts, after the position `before` if given, where it ends, and what its keys begin with."""
    if which.correlation_id is not None:
        prefix: tuple[str, ...] = _CORRELATION, label_key(which.correlation_id) or ""
    elif which.target is not None:
        prefix = _TARGET, label_key(which.target) or ""
    else:
        prefix = (_RECEIVED,)
    start = IndexKey.of(*prefix, _newest_first(which.until)) if before is None else _key_at(prefix, before)
    end = None if which.since is None else IndexKey.of(*prefix, _newest_first(which.since) + "~")
    return start, end, IndexKey.of(*prefix)


def place_of(key: IndexKey) -> str:
    """Return the position of a key in a list, as `codec.received_key` does."""
    *_, listed, task_id = key.elements()
    return f"{isoformat(_EPOCH + timedelta(microseconds=_FAR - int(listed)))}/{task_id}"


def _newest_first(moment: datetime) -> str:
    return f"{_FAR - (moment - _EPOCH) // timedelta(microseconds=1):020d}"


def _key_at(prefix: tuple[str, ...], place: str) -> IndexKey:
    moment, _, task_id = place.partition("/")
    return IndexKey.of(*prefix, _newest_first(datetime.fromisoformat(moment)), task_id)
