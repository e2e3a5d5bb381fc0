"""The plan of an expiry, what its commit removes from the metadata, and the notes beside it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, TypeVar

from pydantic import Field, ValidationError

from delegation.removal.chunks import Stored
from delegation.removal.errors import PlanTampered
from delegation.removal.expiry.history import history
from delegation.removal.expiry.retention import Expired
from delegation.removal.index import ReducedIndex, ReplacedPlan
from delegation.removal.neighbours import AskedAnew
from delegation.storage.base import ObjectNotFound, PlanStore


class Removal(Stored):
    """What the commit removes: snapshots, refs with the snapshot that each was at, schemas, partition specs."""

    snapshot_ids: tuple[int, ...] = ()
    refs: dict[str, int] = Field(default_factory=dict)
    schema_ids: tuple[int, ...] = ()
    spec_ids: tuple[int, ...] = ()

    @classmethod
    def of(cls, metadata: Mapping[str, Any], gone: Expired) -> "Removal":
        """Return what is removed from metadata, in order."""
        refs = history(metadata).refs
        return cls(
            snapshot_ids=tuple(sorted(gone.snapshot_ids)),
            refs={name: refs[name].snapshot_id for name in sorted(gone.refs)},
            schema_ids=tuple(sorted(gone.schema_ids)),
            spec_ids=tuple(sorted(gone.spec_ids)),
        )

    def gone_from(self, metadata: Mapping[str, Any]) -> "Removal":
        """Return what of it metadata has no more; raise CorruptMetadata."""
        found = history(metadata)
        return Removal(
            snapshot_ids=tuple(one for one in self.snapshot_ids if one not in found.snapshots),
            refs={name: at for name, at in self.refs.items() if name not in found.refs},
            schema_ids=tuple(one for one in self.schema_ids if one not in found.schema_ids),
            spec_ids=tuple(one for one in self.spec_ids if one not in found.spec_ids),
        )


class ExpiryIndex(ReducedIndex):
    """The index of an expiry's plan.

    A plan is reduced after the commit, when a file in it turns out to be needed; never extended. What was deleted by a
    reduced plan has its marks beside that one.
    """

    removal: Removal
    reduces: tuple[ReplacedPlan, ...] = ()


class OwnCommit(Stored):
    """A commit of this expiry whose answer is known: the snapshots that it removed, and the metadata file from before.

    `metadata_location` is the metadata file of the commit, `retention` what was to be kept then, `removed` all that it
    removed.
    """

    format: int = 1
    metadata_location: str
    before: str
    snapshot_ids: tuple[int, ...]
    retention: dict[str, Any] | None = None
    removed: Removal | None = None


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
