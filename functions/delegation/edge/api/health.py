"""Whether the service works: its dependencies, its release and what bounds policies; no error's text is quoted."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from delegation.edge.api.callers import caller_of, check_request_id
from delegation.edge.api.endpoints import HEALTH
from delegation.edge.api.release import VERSION
from delegation.edge.api.routes import Dependencies, Event, Served
from delegation.edge.telemetry import Telemetry
from delegation.edge.trust.permissions import Permission
from delegation.wire.responses import render_json
from polaris_common.errors import DelegationError


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The health of the service; without a token only whether it is up, which is decided by the first check."""

    deps: Dependencies
    telemetry: Telemetry

    def health(self, event: Event) -> Served:
        """Return 200 if the service is up, and 503 if a request would fail."""
        check_request_id(event)
        caller = caller_of(event)
        in_full = caller is not None and Permission.READ in caller.permissions
        names = list(self.deps.checks) if in_full else list(self.deps.checks)[:1]
        found = [checked(name, self.deps.checks[name]) for name in names]
        status = "up" if all(each["ok"] for each in found) else "down"
        body: dict[str, Any] = {"status": status}
        if in_full:
            body |= {"version": VERSION, "realm": self.deps.realm, "dependencies": found, "paused": self._paused()}
            body["maintenance"] = self.deps.maintenance()
        answer = 200 if status == "up" else 503
        self.telemetry.served(HEALTH.operation, answer)
        return Served(answer, render_json(body), {} if status == "up" else {"Retry-After": "5"})

    def _paused(self) -> list[Mapping[str, Any]]:
        """Return what is paused; nothing if that cannot be read now, for then the check of the task table fails."""
        try:
            return [pause.document() for pause in self.deps.pauses().shown().pauses]
        except DelegationError:
            return []


def checked(name: str, check: Callable[[], object]) -> Mapping[str, Any]:
    """Return the result of a check: `ok`, and the error's code if it failed."""
    try:
        check()
    except DelegationError as error:
        return {"name": name, "ok": False, "error_code": error.code}
    return {"name": name, "ok": True, "error_code": None}
