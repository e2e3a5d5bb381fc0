"""What a verification rule is made of.

A rule says what to load, what to remember of the state before the mutation, and how to judge the state after a call
that ended without a clear outcome (Idempotency-Key proposal, "Reconciliation branches").
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from delegation.gateway.answers import json_answer
from delegation.gateway.messages import CatalogAnswer

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lookup:
    """A read of the catalog as the caller; with `vends` under the request's own X-Iceberg-Access-Delegation."""

    path: str
    query: str = ""
    vends: bool = False
    exists: bool = False
    """Only whether it is there: HEAD instead of GET."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a lookup found; `document` is empty for one that asked only whether it is there."""

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
    """The state shows the payload (R1); `is_certain` if nothing else can have brought it about."""

    answer: CatalogAnswer
    is_certain: bool = False


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The state does not show the payload, so it may be run (R2)."""


@dataclass(frozen=True, slots=True)
class Incompatible:
    """Something else changed the state, so that neither is certain; the mutation is not run again."""

    reason: str


Judgement = Applied | NotApplied | Incompatible
NOT_APPLIED: Final = NotApplied()
DONE: Final = CatalogAnswer(204)
"""The answer of mutations that return nothing."""


def _not_applied(_before: Any, _states: Sequence[State]) -> Judgement:
    return NOT_APPLIED


@dataclass(frozen=True, slots=True)
class VerificationRule:
    """How one request is verified.

    `note` makes of the states of `before` what is remembered, JSON or None for nothing; `judge` is given that (None if
    nothing is known) and the states of `after`, in their order. `restore` is where credentials are vended anew.
    """

    judge: Callable[[Any, Sequence[State]], Judgement] = _not_applied
    after: tuple[Lookup, ...] = ()
    note: Callable[[Sequence[State]], Any] = lambda _states: None
    before: tuple[Lookup, ...] = ()
    restore: Lookup | None = None
    restages: bool = False
    """Whether a request without effect may be sent again to have credentials vended."""


ALWAYS_RUN: Final = VerificationRule()
"""For a request without effect, and for one that the catalog refuses as malformed."""


def exists_noted(states: Sequence[State]) -> Any:
    """Note whether the one thing is there."""
    return {"exists": states[0] is not None}


def uuid_noted(name: str) -> Callable[[Sequence[State]], Any]:
    """Return a note of the UUID, which is in the metadata under `name`, of the one thing."""

    def note(states: Sequence[State]) -> Any:
        found = states[0]
        return {"uuid": None if found is None else found.metadata[name]}

    return note


def loaded(found: Found) -> Applied:
    """Return the loaded table or view as the answer to its creation: both are the same document."""
    etag = found.answer.header("ETag")
    return Applied(json_answer(200, found.document, *([("ETag", etag)] if etag else [])))


def judge_drop(uuid_name: str) -> Callable[[Any, Sequence[State]], Judgement]:
    """Return the rule of a drop: what had the noted UUID is gone.

    Another one of the same name was created since, and is not dropped.
    """

    def judge(before: Any, states: Sequence[State]) -> Judgement:
        uuid = None if before is None else before["uuid"]
        if uuid is None:
            return NOT_APPLIED
        found = states[0]
        return NOT_APPLIED if found is not None and same_uuid(found.metadata[uuid_name], uuid) else Applied(DONE)

    return judge


def same_uuid(one: object, other: object) -> bool:
    """Whether two UUIDs are equal; some clients write capital letters."""
    return str(one).lower() == str(other).lower()


def contains(known: JsonObject, wanted: JsonObject) -> bool:
    """Whether an object has all of another one's members."""
    return all(name in known and known[name] == value for name, value in wanted.items())


def plain(value: Any) -> Any:
    """Return a JSON value without members that are null, which writers leave out."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items() if each is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value


def canonical(value: Any) -> str:
    """Return JSON text that equal values share."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"))
