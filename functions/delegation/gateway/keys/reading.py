"""Loads state as the caller after an unclear outcome, and judges what it proves and which answers are the catalog's
own.

Source: Idempotency-Key proposal, "Reconciliation branches". Others may have changed or undone the same meanwhile, so
"not applied" needs proof: a number of the same UUID that only grows (sequence numbers, column ids, versions) and is
below what the request would have made of it. An answer that is not the catalog's own comes from a proxy and leaves the
outcome unknown. Sources: Iceberg REST Catalog API (responses, IcebergErrorResponse); Polaris 1.4 and 1.7, observed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from delegation.gateway.forwarding import without
from delegation.gateway.messages import (
    CatalogAnswer,
    CatalogOutcomeUnknown,
    CatalogRequest,
    CatalogUnavailable,
    MutationNotVerified,
    json_answer,
)
from delegation.gateway.routing import KEY_HEADER, Operation

JsonObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lookup:
    """A read of the catalog as the caller. `vends` sends the request's own X-Iceberg-Access-Delegation."""

    path: str
    query: str = ""
    vends: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    answer: CatalogAnswer = field(default_factory=lambda: CatalogAnswer(204))
    document: JsonObject = field(default_factory=dict, repr=False)

    @property
    def metadata(self) -> JsonObject:
        """The metadata of a loaded table or view. Raises KeyError."""
        metadata: JsonObject = self.document["metadata"]
        return metadata


State = Found | None
"""None: nothing exists at the path."""


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
    """Neither is proved: the mutation is not run again, and its outcome is unknown."""

    reason: str


Verification = Applied | NotApplied | Undecided
NOT_APPLIED: Final = NotApplied()
DONE: Final = CatalogAnswer(204)
"""The answer of mutations that return nothing."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a rule verifies by: the states of its lookups, in order. `since` is when the first call with the key
    started, less the possible difference of clocks. `noted` is the rule's note from before that call, None without
    one."""

    states: Sequence[State]
    since: datetime
    noted: Any = None

    def is_newer(self, timestamp_ms: object) -> bool:
        """Return whether a time in milliseconds is not before the first call."""
        return isinstance(timestamp_ms, int) and timestamp_ms >= self.since.timestamp() * 1000


Verify = Callable[[Evidence], Verification]


def undecided(reason: str) -> Verify:
    """Return the rule of a change that leaves no trace."""
    return lambda _evidence: Undecided(reason)


def _without_effect(_evidence: Evidence) -> Verification:
    return NOT_APPLIED


@dataclass(frozen=True, slots=True)
class VerificationRule:
    """How one request is verified. `verify` gets the states of `after`. `note` returns JSON to remember (or None) from
    the states of `before`. `restore` is where credentials are vended again."""

    verify: Verify
    after: tuple[Lookup, ...] = ()
    note: Callable[[Sequence[State]], Any] = lambda _states: None
    before: tuple[Lookup, ...] = ()
    restore: Lookup | None = None
    restages: bool = False
    """Whether a request without effect may be sent again to get credentials vended."""
    leaves_files: bool = False
    """Whether clients delete a commit's files when it is refused; then the state may show it for certain."""
    of_recorded: Callable[[Found], Applied] | None = None
    """What the table of the first of `after` means if the catalog itself has recorded the request's key on it. If it
    has recorded none, nothing is read of `before`, which is the table's metadata file."""
    parts: "tuple[VerificationRule, ...]" = ()
    """Rules of which a single one may decide; without any the rule itself does."""


def without_effect(restore: Lookup) -> VerificationRule:
    """Return the rule of a request without effect, which may be repeated."""
    return VerificationRule(_without_effect, restore=restore, restages=True)


MALFORMED_REQUEST: Final = VerificationRule(undecided("the request does not conform to the Iceberg REST Catalog API"))


def uuid_noted(name: str) -> Callable[[Sequence[State]], Any]:
    """Return a note of the UUID at `name` in the metadata of the single state."""

    def note(states: Sequence[State]) -> Any:
        state = states[0]
        return {"uuid": None if state is None else state.metadata[name]}

    return note


def location_noted(states: Sequence[State]) -> Any:
    """Return the metadata file of the single table, None without a table."""
    return None if states[0] is None else states[0].document["metadata-location"]


def asserted(requirements: Sequence[JsonObject], kind: str, member: str) -> Any:
    return next((each.get(member) for each in requirements if each.get("type") == kind), None)


def loaded(state: Found) -> Applied:
    """Return the loaded table or view as the answer to its creation, which is the same document."""
    etag = state.answer.header("ETag")
    return Applied(json_answer(200, state.document, *([("ETag", etag)] if etag else [])))


def same_uuid(uuid: object, other: object) -> bool:
    """Return whether two UUIDs are equal; some clients write capital letters."""
    return str(uuid).lower() == str(other).lower()


def contains(known: JsonObject, wanted: JsonObject) -> bool:
    return all(name in known and known[name] == value for name, value in wanted.items())


TYPES: Final = frozenset({"type", "element", "key", "value"})
"""The members of a schema's JSON that hold a type."""


def one_spelling(kind: Any) -> Any:
    """Return a primitive type's name without spaces, which readers ignore: decimal(9, 2); any other value unchanged."""
    return "".join(kind.split()) if isinstance(kind, str) else kind


def plain(value: Any) -> Any:
    """Return a JSON value without null members, which writers omit."""
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items() if each is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value


_WITHOUT_BODY: Final = frozenset({
    Operation.COMMIT_TRANSACTION,
    Operation.DROP_NAMESPACE,
    Operation.DROP_TABLE,
    Operation.DROP_VIEW,
    Operation.RENAME_TABLE,
    Operation.RENAME_VIEW,
})  # fmt: skip
_OBJECTS: Final[Mapping[Operation, Mapping[str, type]]] = {
    Operation.CREATE_NAMESPACE: {"namespace": list},
    Operation.SET_PROPERTIES: {"updated": list, "removed": list},
    Operation.CREATE_TABLE: {"metadata": dict},
    Operation.REGISTER_TABLE: {"metadata": dict, "metadata-location": str},
    Operation.UNREGISTER_TABLE: {"metadata": dict, "metadata-location": str},
    Operation.COMMIT_TABLE: {"metadata": dict, "metadata-location": str},
    Operation.CREATE_VIEW: {"metadata": dict, "metadata-location": str},
    Operation.REGISTER_VIEW: {"metadata": dict, "metadata-location": str},
    Operation.REPLACE_VIEW: {"metadata": dict, "metadata-location": str},
}
"""The members that the JSON of a success has, by operation."""

# Polaris' own forms: the body of a rename by 1.4, and refusals before any handler, for a token or the rate.
_RENAMED: Final = b'"NO_CONTENT"'
_EMPTY_REFUSALS: Final = frozenset({401, 429})


def is_genuine(operation: Operation, answer: CatalogAnswer) -> bool:
    return _is_success(operation, answer) if answer.is_success else is_error(answer)


def _is_success(operation: Operation, answer: CatalogAnswer) -> bool:
    if operation in _WITHOUT_BODY:
        renames = operation in {Operation.RENAME_TABLE, Operation.RENAME_VIEW}
        return answer.status in {200, 204} and (not answer.body or (renames and answer.body.strip() == _RENAMED))
    document = answer.document
    return (
        answer.status == 200
        and document is not None
        and all(isinstance(document.get(name), kind) for name, kind in _OBJECTS[operation].items())
    )


def is_error(answer: CatalogAnswer) -> bool:
    """Return whether a refusal has Iceberg's ErrorModel, or is one that Polaris gives without a body. An outcome
    unknown to the catalog is no refusal, whatever its status: Polaris 1.7 answers 400."""
    if answer.status < 400:
        return False
    if answer.status in _EMPTY_REFUSALS and not answer.body:
        return True
    error = (answer.document or {}).get("error")
    if not isinstance(error, dict) or error.get("type") == "CommitStateUnknownException":
        return False
    return isinstance(error.get("type"), str) and error.get("code") == answer.status


def is_absence(answer: CatalogAnswer) -> bool:
    """Return whether the catalog states that the object does not exist."""
    if answer.status != 404 or not is_error(answer):
        return False
    kind = (answer.document or {})["error"]["type"]
    return str(kind).startswith("NoSuch")


Forward = Callable[[CatalogRequest], CatalogAnswer]
"""Sends a request to the catalog. Raises CatalogUnavailable and CatalogOutcomeUnknown."""

_OF_THE_REQUEST: Final = (
    "accept-encoding",
    "content-encoding",
    "content-type",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-unmodified-since",
    "range",
    KEY_HEADER,
)
"""Headers of the mutation that a read does not have."""
_DELEGATION: Final = "X-Iceberg-Access-Delegation"
_PLAIN: Final = ("Accept-Encoding", "identity")


class CallersView:
    def __init__(self, forward: Forward, request: CatalogRequest) -> None:
        self._forward = forward
        self._request = request

    def states(self, lookups: Sequence[Lookup]) -> tuple[State, ...]:
        """Read all lookups. Raises MutationNotVerified for one that cannot be read."""
        return tuple(self.state(each) for each in lookups)

    def state(self, lookup: Lookup) -> State:
        try:
            answer = self._forward(self._read(lookup))
        except (CatalogUnavailable, CatalogOutcomeUnknown) as error:
            raise MutationNotVerified(
                f"the gateway could not read /{lookup.path} to find out what a call with this key did ({error.code}). "
                "Repeat the request with the same key"
            ) from error
        if answer.status == 200:
            return Found(answer, _document(answer, lookup))
        if is_absence(answer):
            return None
        raise MutationNotVerified(
            f"the outcome of a call with this key is unclear: the catalog answered {answer.status} when the gateway "
            f"read /{lookup.path} with the caller's token. If that is a refusal, grant the caller the privilege to "
            "read it (TABLE_READ_PROPERTIES, VIEW_READ_PROPERTIES or NAMESPACE_READ_PROPERTIES). Then repeat the "
            "request with the same key",
            is_refused=answer.status == 403 and is_error(answer),  # after 401 another token may show it
        )

    def has_recorded(self, lookup: Lookup, key: str) -> object:
        """Return the UUID of the table on which the catalog has recorded a key, None if it has not. Sends a commit that
        cannot apply, as it asserts a UUID that no table has. For a key that it has applied Polaris answers with the
        table (IcebergCatalogHandler); any other it refuses."""
        body = {"requirements": [{"type": "assert-table-uuid", "uuid": str(uuid4())}], "updates": []}
        headers = (*self._read(lookup).headers, ("Content-Type", "application/json"), (KEY_HEADER, key))
        try:
            answer = self._forward(CatalogRequest("POST", lookup.path, "", headers, json.dumps(body).encode()))
        except (CatalogUnavailable, CatalogOutcomeUnknown):
            return None
        metadata = _document(answer, lookup).get("metadata") if answer.status == 200 else None
        return metadata.get("table-uuid") if isinstance(metadata, dict) else None

    def repeat(self, request: CatalogRequest) -> CatalogAnswer:
        return self._forward(unkeyed(request))

    def _read(self, lookup: Lookup) -> CatalogRequest:
        dropped = _OF_THE_REQUEST if lookup.vends else (*_OF_THE_REQUEST, _DELEGATION)
        headers = (*without(self._request.headers, *dropped), _PLAIN)
        return CatalogRequest("GET", lookup.path, lookup.query, headers)


def unkeyed(request: CatalogRequest, catalog_key: str | None = None) -> CatalogRequest:
    """Return a mutation without its key, and with headers for an answer that can be read and stored. `catalog_key`
    replaces the key: catalogs have their own rules, and Polaris 1.7 refuses a key that is no UUID."""
    own = () if catalog_key is None else ((KEY_HEADER, catalog_key),)
    headers = (*without(request.headers, KEY_HEADER, "accept-encoding"), _PLAIN, *own)
    return CatalogRequest(request.method, request.path, request.query, headers, request.body)


def _document(answer: CatalogAnswer, lookup: Lookup) -> dict[str, object]:
    document = answer.document
    if document is None:
        raise MutationNotVerified(
            f"the answer {answer.status} to /{lookup.path} is not a JSON object. Repeat the request with the same key"
        )
    return document
