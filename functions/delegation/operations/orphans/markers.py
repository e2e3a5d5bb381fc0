"""The delete markers that a removal wrote in a bucket with versions, recorded beside its plan for a restore.

`{plan}/markers/{nonce}.jsonl.gz` has the markers of one delete, a JSON object on each line: {"path", "size", "etag",
"modified", "marker"}, the object as it was listed and the version id of its marker. `{plan}/restored/{nonce}` states
that every file of that record is back.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from delegation.operations.orphans.index import Candidate
from delegation.removal.errors import PlanTampered
from delegation.storage.base import PlanStore
from delegation.storage.listing.model import ListedObject

_END: Final = ".jsonl.gz"
_NULL: Final = "null"
"""The version id of a delete marker where versioning is suspended: what was below it is gone."""


class Hidden(NamedTuple):
    """A file that was deleted with a delete marker."""

    file: Candidate
    marker: str


def record_markers(
    plans: PlanStore, plan_id: str, nonce: str, listed: Sequence[tuple[str, ListedObject]], markers: Mapping[str, str]
) -> None:
    """Record the delete markers, by key, of one delete of objects, each given with its path.

    Does nothing without any that can be removed again.
    """
    lines = []
    for path, one in listed:
        marker = markers.get(one.key, _NULL)
        if marker != _NULL:
            fields = {"path": path, "size": one.size, "etag": one.etag, "modified": one.modified}
            lines.append(json.dumps({**fields, "marker": marker}, ensure_ascii=False) + "\n")
    if lines:
        plans.put(f"{_prefix(plan_id)}{nonce}{_END}", gzip.compress("".join(lines).encode(), mtime=0))


def recorded(plans: PlanStore, plan_id: str) -> list[str]:
    """Return the names of a plan's records."""
    prefix = _prefix(plan_id)
    return [key.removeprefix(prefix) for key in plans.keys(prefix)]


def read_markers(plans: PlanStore, plan_id: str, name: str) -> Iterator[Hidden]:
    """Yield what a record has; raise PlanTampered if it cannot be read, and the errors of the store."""
    data = plans.get(f"{_prefix(plan_id)}{name}")
    try:
        # A key may have other line breaks.
        for line in gzip.decompress(data).decode().rstrip("\n").split("\n"):
            one = json.loads(line)
            yield Hidden(Candidate(one["path"], one["size"], one["etag"], one["modified"]), str(one["marker"]))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise PlanTampered(plan_id, f"the record {name} of its delete markers cannot be read") from error


def mark_restored(plans: PlanStore, plan_id: str, name: str) -> None:
    """Record that every file of a record is back."""
    plans.put(f"{plan_id}/restored/{name}", b"{}\n")


def restored(plans: PlanStore, plan_id: str) -> frozenset[str]:
    """Return the names of the records of which every file is back."""
    prefix = f"{plan_id}/restored/"
    return frozenset(key.removeprefix(prefix) for key in plans.keys(prefix))


def _prefix(plan_id: str) -> str:
    return f"{plan_id}/markers/"
