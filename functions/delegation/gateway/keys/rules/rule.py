"""The parts of a verification rule: what to load after an unclear outcome, and what that proves. Source:
Idempotency-Key proposal, "Reconciliation branches". Others may have changed or undone the same meanwhile, so "not
applied" needs proof: something of the same UUID that only grows (sequence numbers, column ids, versions) and is below
what the request would have made of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from delegation.gateway.answers import json_answer
from delegation.gateway.messages import CatalogAnswer

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lookup:
    """A read of the catalog as the caller; `vends` with the request's own X-Iceberg-Access-Delegation."""

    path: str
    query: str = ""
    vends: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    answer: CatalogAnswer = field(default_factory=lambda: CatalogAnswer(204))
    document: JsonObject = field(default_factory=dict, repr=False)

    @property
    def metadata(self) -> JsonObject:
        """The metadata of a loaded table or view; raises KeyError."""
        metadata: JsonObject = self.document["metadata"]
        return metadata


State = Found | None
"""None: there is nothing at the path."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The state shows the payload (R1); `is_certain` if nothing else can have caused it."""

    answer: CatalogAnswer
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class NotApplied:
    """It is proved that the payload was not applied, so it may be run (R2)."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """Neither is proved; the mutation is not run again, and its outcome is unknown."""

    reason: str


Verification = Applied | NotApplied | Undecided
NOT_APPLIED: Final = NotApplied()
DONE: Final = CatalogAnswer(204)
"""The answer of mutations that return nothing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a rule verifies by: the states of its lookups, in order. `since` is when the first call with the key began,
    less the clocks' possible difference. `noted` is the rule's note from before that call, None without one."""

    states: Sequence[State]
    since: datetime
    noted: Any = None

    def is_newer(self, timestamp_ms: object) -> bool:
        """Whether a time in milliseconds is not before the first call."""
        return isinstance(timestamp_ms, int) and timestamp_ms >= self.since.timestamp() * 1000


Verify = Callable[[Evidence], Verification]


def undecided(reason: str) -> Verify:
    """Return the rule of a change that leaves no trace."""
    return lambda _evidence: Undecided(reason)


def _without_effect(_evidence: Evidence) -> Verification:
    return NOT_APPLIED


@dataclass(frozen=True, slots=True)
class VerificationRule:
    """How one request is verified. `verify` gets the states of `after`; `note` makes JSON to remember, or None, of the
    states of `before`; `restore` is where credentials are vended again."""

    verify: Verify
    after: tuple[Lookup, ...] = ()
    note: Callable[[Sequence[State]], Any] = lambda _states: None
    before: tuple[Lookup, ...] = ()
    restore: Lookup | None = None
    restages: bool = False
    """Whether a request without effect may be sent again to have credentials vended."""
    leaves_files: bool = False
    """Whether clients delete the files of a commit that is refused; then the state may show it for certain."""
    of_recorded: Callable[[Found], Applied] | None = None
    """What the table of the first of `after` means if the catalog itself has recorded the request's key on it.

    Where the catalog records none, nothing is read of `before`, which is the table's metadata file."""
    parts: "tuple[VerificationRule, ...]" = ()
    """Rules of which one alone may decide; without any the rule itself does."""


def without_effect(restore: Lookup) -> VerificationRule:
    """Return the rule of a request without effect, which may be repeated."""
    return VerificationRule(_without_effect, restore=restore, restages=True)


MALFORMED_REQUEST: Final = VerificationRule(undecided("the request does not conform to the Iceberg REST Catalog API"))


def uuid_noted(name: str) -> Callable[[Sequence[State]], Any]:
    """Return a note of the UUID at `name` in the metadata of the single state."""

    def note(states: Sequence[State]) -> Any:
        found = states[0]
        return {"uuid": None if found is None else found.metadata[name]}

    return note


def location_noted(states: Sequence[State]) -> Any:
    """Return the metadata file of the single table, None without a table."""
    return None if states[0] is None else states[0].document["metadata-location"]


def asserted(requirements: Sequence[JsonObject], kind: str, member: str) -> Any:
    return next((each.get(member) for each in requirements if each.get("type") == kind), None)


def loaded(found: Found) -> Applied:
    """Return the loaded table or view as the answer to its creation, which is the same document."""
    etag = found.answer.header("ETag")
    return Applied(json_answer(200, found.document, *([("ETag", etag)] if etag else [])))


def same_uuid(one: object, other: object) -> bool:
    """Whether two UUIDs are equal; some clients write capital letters."""
    return str(one).lower() == str(other).lower()


def contains(known: JsonObject, wanted: JsonObject) -> bool:
    return all(name in known and known[name] == value for name, value in wanted.items())


TYPES: Final = frozenset({"type", "element", "key", "value"})
"""The members of a schema's JSON that hold a type."""


def one_spelling(kind: Any) -> Any:
    """Return a primitive type's name without spaces, which readers ignore: decimal(9, 2); others unchanged."""
    return "".join(kind.split()) if isinstance(kind, str) else kind


def plain(value: Any) -> Any:
    """Return a JSON value without members that are null, which writers leave out."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items() if each is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value
