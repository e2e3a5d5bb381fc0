"""The requests for touches: their body, their options, and when two of them are the same."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from pydantic import Field

from delegation.tasks.life.lanes import Traits
from delegation.tasks.life.model import Labels, Status, Task
from delegation.tasks.submission.form import RequestSources, RequestWords, WantedTask
from delegation.tasks.submission.options import CALLBACK_OPTION, Option, OptionTable, SetBy, callback_of
from delegation.wire.requests import Properties, ReceivedBody, ReceivedPart, TableIdentity
from tests.unit.wiring.table_touch.task_type import DEADLINE, NAME, PREFIX
from tests.unit.wiring.table_touch.work import Touch

OPTIONS: Final = OptionTable(
    PREFIX,
    (
        Option(
            name="depth",
            by=SetBy.BOTH,
            values=("metadata", "manifests"),
            loosest="manifests",
            meaning="How deep a touch may look: `metadata` or `manifests`.",
        ),
        Option(name="note", by=SetBy.CALLER, pattern="[a-z ]{1,40}", expected="words", described="Why it is touched."),
        CALLBACK_OPTION,
    ),
)


class TouchParameters(ReceivedPart):
    """The table to touch."""

    table_identity: TableIdentity
    properties: Properties = Field(default_factory=dict)


class TouchPayload(ReceivedBody):
    """The payload of a touch."""

    operation_parameters: TouchParameters


@dataclass(frozen=True, slots=True)
class AskedTouch:
    """Asked, of one table and depth."""

    touch: Touch
    callback: str | None
    task_type: str = NAME
    payload_version: int = 1
    traits: Traits | None = None
    labels: Labels | None = None
    deadline: timedelta | None = DEADLINE

    @property
    def task_id(self) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"touch:{self.touch.table}:{self.touch.depth}"))

    @property
    def payload(self) -> str:
        return self.touch.model_dump_json()

    def obstacle(self, task: Task) -> str | None:
        return None

    def replays(self, task: Task) -> bool:
        return task.status is Status.SUCCESS

    def resumes(self, task: Task) -> bool:
        return False


class TouchForm:
    """RequestForm of touches."""

    operations: Final = (NAME,)
    body: Final = TouchPayload
    options: Final = OPTIONS
    words: Final = RequestWords("Touching {} …")
    is_waited_for: Final = True
    waits_with_table: Final = False

    def request(self, wanted: WantedTask, *, synchronous: bool) -> Mapping[str, Any]:
        name = wanted.identifier
        identity = {
            "catalog_name": name.catalog,
            "namespace_levels": list(name.namespace),
            "table_name": name.name,
        }
        common = {"operation_type": NAME, "realm_identifier": wanted.realm}
        joined = {} if wanted.correlation_id is None else {"polaris_correlation_id": wanted.correlation_id}
        return {
            "common_payload": common | joined,
            "operation_parameters": {"table_identity": identity, "properties": dict(wanted.properties)},
        }

    def check(self, properties: Mapping[str, str]) -> None:
        OPTIONS.limits(properties)

    def refuse_waiting(self, body: TouchPayload) -> None:
        """A touch is short."""

    def asked(self, body: TouchPayload, document: Mapping[str, Any], sources: RequestSources) -> AskedTouch:
        common, parameters = body.common_payload, body.operation_parameters
        chosen = OPTIONS.chosen(parameters.properties, OPTIONS.limits(sources.properties))
        identity = parameters.table_identity
        touch = Touch(
            realm=sources.realm,
            table=".".join([identity.catalog_name, *identity.namespace_levels, identity.table_name]),
            depth=chosen["depth"],
            note=chosen.get("note"),
            correlation_id=common.polaris_correlation_id,
        )
        return AskedTouch(touch, callback_of(parameters.properties, sources.callbacks()))
