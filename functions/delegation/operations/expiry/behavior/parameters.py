"""The parameters of an expiry, stored as `task_payload`, and the task id made from them."""

import json
from typing import ClassVar, Final, Self

from delegation.operations.behaviors.parameters import TableWork
from delegation.operations.expiry.behavior.names import BY_POLICY, PLAN_TASK_TYPE, TASK_TYPE
from delegation.tasks.errors import MalformedPayload
from delegation.tasks.life.model import Task
from delegation.wire.expiries import OPERATION

_POLICY: Final = "policy"


class TableExpiry(TableWork):
    """An expiry of a known table's snapshots, with the table's state when the request was accepted.

    `policy` names the policy that asks for it, None where a caller does; no request can set it.
    """

    operation: ClassVar[str] = OPERATION
    work_task_type: ClassVar[str] = TASK_TYPE
    plan_task_type: ClassVar[str] = PLAN_TASK_TYPE

    policy: str | None = None

    @property
    def payload_version(self) -> int:
        """The version of the payload."""
        return 1 if self.policy is None else BY_POLICY

    def of_the_work(self) -> dict[str, str]:
        """Return the properties that decide what is done, not who is notified, and the policy that asks for it."""
        of_policy = {} if self.policy is None else {"the policy": self.policy}
        return super().of_the_work() | of_policy

    def to_payload(self) -> str:
        """Return `task_payload` as JSON text (Delegation Service proposal, Persistence)."""
        document = self.document(self.task_type)
        if self.policy is not None:
            document["operation_parameters"][_POLICY] = self.policy
        return json.dumps(document, sort_keys=True)

    @classmethod
    def of(cls, task: Task) -> Self:
        """Read a stored task's parameters; raise MalformedPayload if its payload is not that of an expiry."""
        found = super().of(task)
        try:
            policy = json.loads(task.task_payload)["operation_parameters"].get(_POLICY)
        except (ValueError, KeyError, TypeError) as error:
            raise MalformedPayload(task.task_id, type(error).__name__) from None
        return found if policy is None else found.model_copy(update={"policy": str(policy)})
