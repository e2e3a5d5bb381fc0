"""What an expiry notes beside its plan for its further attempts: the commit, the comparison of refs, the references."""

from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from delegation.keeping.asking import AskedAnew
from delegation.storage.base import ObjectNotFound, PlanStore
from delegation.worksets.chunks import Stored
from delegation.worksets.errors import PlanTampered


class OwnCommit(Stored):
    """A commit of this expiry whose answer is known: the snapshots that it removed, and the metadata file from before.

    `metadata_location` is the metadata file of the commit, `retention` what was to be kept then.
    """

    format: int = 1
    metadata_location: str
    before: str
    snapshot_ids: tuple[int, ...]
    retention: dict[str, Any] | None = None


class SentCommit(Stored):
    """A commit that was sent at a time, with refs that it asserts at their snapshots."""

    at: datetime
    refs: dict[str, int]


class SentCommits(Stored):
    """The commits that were sent and of which it is not known that they were refused."""

    format: int = 1
    commits: tuple[SentCommit, ...]


class ComparedRefs(Stored):
    """The snapshots that were gone when it was found that no ref was lost with them."""

    format: int = 1
    snapshot_ids: tuple[int, ...]


NOTES: Final[dict[type[Stored], str]] = {
    OwnCommit: "committed.json",
    SentCommits: "sent.json",
    ComparedRefs: "looked.json",
    AskedAnew: "references.json",
}
_Note = TypeVar("_Note", bound=Stored)


class Notes:
    """The notes of one plan, by the id that it had before it was reduced."""

    def __init__(self, store: PlanStore, plan_id: str) -> None:
        self._store = store
        self._plan_id = plan_id

    def put(self, note: OwnCommit | SentCommits | ComparedRefs | AskedAnew) -> None:
        """Store a note in place of the former one of its kind."""
        document = note.model_dump_json(indent=1)
        self._store.put(self._key(type(note)), f"{document}\n".encode())

    def get(self, kind: type[_Note]) -> _Note | None:
        """Return the note of a kind, None if there is none; raise PlanTampered if it cannot be read."""
        key = self._key(kind)
        try:
            return kind.model_validate_json(self._store.get(key), strict=True)
        except ObjectNotFound:
            return None
        except ValidationError as error:
            raise PlanTampered(key, "it cannot be read") from error

    def _key(self, kind: type[Stored]) -> str:
        return f"{self._plan_id}/{NOTES[kind]}"
