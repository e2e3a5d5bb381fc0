"""What operators do with all tasks at once: pause them, let them continue, and see what is paused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from delegation.edge.api.callers import Admitted, admitted
from delegation.edge.api.endpoints import PAUSE, PAUSES, RESUME, Endpoint
from delegation.edge.api.routes import Dependencies, Event, Served, key_of, require_json
from delegation.edge.document import read_body
from delegation.edge.requests import bad_request
from delegation.edge.telemetry import Telemetry
from delegation.tasks.life.model import Caller
from delegation.tasks.pauses import PauseMode, PauseRecord, PauseScope
from delegation.wire.pauses import PauseRequest, ResumeRequest
from delegation.wire.responses import render_json

B = TypeVar("B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Pausing:
    """The operations on pauses; each may be repeated, and with an idempotency key changes something at most once."""

    deps: Dependencies
    telemetry: Telemetry

    def shown(self, event: Event) -> Served:
        admitted(event, PAUSES)
        return self._served(PAUSES, self.deps.pauses().shown())

    def pause(self, event: Event) -> Served:
        """Pause a scope in the caller's name; raises BadRequest, TaskError (TOO_MANY_PAUSES)."""
        caller = admitted(event, PAUSE)

        def pause(wanted: PauseRequest) -> PauseRecord:
            by = Caller(client_id=caller.client_id, subject=caller.subject)
            mode = PauseMode(wanted.mode)
            return self.deps.pauses().pause(self._scope(wanted), by=by, reason=wanted.reason, mode=mode)

        return self._changed(event, PAUSE, caller, PauseRequest, pause)

    def resume(self, event: Event) -> Served:
        """End the pause of a scope; raises BadRequest."""
        caller = admitted(event, RESUME)
        return self._changed(
            event, RESUME, caller, ResumeRequest, lambda wanted: self.deps.pauses().resume(self._scope(wanted))
        )

    def _changed(
        self, event: Event, endpoint: Endpoint, caller: Admitted, model: type[B], change: Callable[[B], PauseRecord]
    ) -> Served:
        """Make a change, at most once for its key; one whose outcome is unknown is made again, with the same effect."""
        key = key_of(event, self.deps)
        document = _document(event)
        wanted = _read(document, model)
        if key is None:
            return self._served(endpoint, change(wanted))
        from delegation.idempotency.canonical import Scope, payload_hashes  # noqa: PLC0415 - only a key needs it
        from delegation.idempotency.mutations.answer import MutationAnswer  # noqa: PLC0415
        from delegation.idempotency.mutations.service import Mutation  # noqa: PLC0415

        performed = self.deps.mutations().perform(
            Mutation(
                scope=Scope(caller.client_id, self.deps.realm, endpoint.method, endpoint.path, key),
                payload_hash=payload_hashes(document),
                run=lambda _attempt: MutationAnswer(200, _body(change(wanted))),
                verify=lambda _attempt: None,
                observe=lambda: None,
            )
        )
        self.telemetry.served(endpoint.operation, performed.answer.status)
        return Served(performed.answer.status, performed.answer.body, {})

    def _scope(self, wanted: ResumeRequest) -> PauseScope:
        realm = self.deps.realm if wanted.scope == "realm" else None
        return PauseScope(realm=realm, table=wanted.table)

    def _served(self, endpoint: Endpoint, record: PauseRecord) -> Served:
        self.telemetry.served(endpoint.operation, 200)
        return Served(200, _body(record), {})


def _body(record: PauseRecord) -> bytes:
    """Return the page's tasks and those that cannot be read, as far as there is room, and the cursor that follows."""
    return render_json({"pauses": [one.document() for one in record.pauses]})


def _document(event: Event) -> Mapping[str, Any]:
    """Return the body of a request; raises what `read_body` and `require_json` raise."""
    require_json(event)
    return read_body(event.get("body"), is_base64=bool(event.get("isBase64Encoded")))


def _read(document: Mapping[str, Any], model: type[B]) -> B:
    """Return the parameters of a request; raises BadRequest."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise bad_request(error, model) from None
