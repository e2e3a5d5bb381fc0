"""The parameters of an expiry, stored as `task_payload`, and the task id made from them."""

import json
import uuid
from typing import Any, Final, Self

import rfc8785

from delegation.operations.expiry.behavior.kinds import BY_POLICY, KIND, PLAN_KIND
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.model import Task
from delegation.tasks.submission.options import CALLBACK, DRY_RUN
from delegation.wire.expiries import ExpiryRequest
from delegation.wire.tables import TableState

_NOT_OF_THE_WORK: Final = frozenset({CALLBACK})
_POLICY: Final = "policy"


class TableExpiry(ExpiryRequest):
    """An expiry of a known table's snapshots, with the table's state when the request was accepted.

    `policy` names the policy that asks for it, None where a caller does; no request can set it.
    """

    table: TableState
    policy: str | None = None

    @property
    def is_dry_run(self) -> bool:
        """Whether the expiry ends with its plan (`properties.dry-run`)."""
        return self.properties.get(DRY_RUN, "false").lower() == "true"

    @property
    def kind(self) -> str:
        """The stored task type."""
        return PLAN_KIND if self.is_dry_run else KIND

    @property
    def payload_version(self) -> int:
        """The version of the payload."""
        return 1 if self.policy is None else BY_POLICY

    @property
    def task_id(self) -> str:
        """The id: one per table uuid, so that no two expiries of one table run at once.

        A dry run has another one for another name, state or option of the table.
        """
        parts: list[Any] = [self.realm, self.kind, self.identifier.catalog, self.table.table_uuid.lower()]
        if self.is_dry_run:
            parts += [
                [*self.identifier.namespace, self.identifier.name],
                self.table.metadata_location,
                self.of_the_work(),
            ]
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"polaris-delegation:{rfc8785.dumps(parts).decode()}"))

    def of_the_work(self) -> dict[str, str]:
        """Return the properties that decide what is done, not who is notified, and the policy that asks for it."""
        of_policy = {} if self.policy is None else {"the policy": self.policy}
        return {name: value for name, value in self.properties.items() if name not in _NOT_OF_THE_WORK} | of_policy

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence)."""
        document = self.document(self.kind)
        if self.policy is not None:
            document["operation_parameters"][_POLICY] = self.policy
        return json.dumps(document, sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a stored task's parameters; raise MalformedPayload if its payload is not that of an expiry."""
        try:
            found = cls.of_stored(task.task_payload)
            policy = json.loads(task.task_payload)["operation_parameters"].get(_POLICY)
            return found if policy is None else found.model_copy(update={"policy": str(policy)})
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPayload(task.task_id, type(error).__name__) from None
