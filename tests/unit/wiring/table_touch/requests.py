"""The requests for touches: their body, their options, and when two of them are the same."""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from delegation.tasks.life.model import Status
from delegation.tasks.options import CALLBACK_OPTION, AskedTask, Option, OptionTable, RequestSources, SetBy, callback_of
from delegation.wire.requests import Properties, ReceivedBody, ReceivedPart, TableIdentity, TableRequest
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


def _id_of(touch: Touch) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"touch:{touch.table}:{touch.depth}"))


class TouchForm:
    """RequestForm of touches."""

    operations: Final = (NAME,)
    body: Final = TouchPayload
    options: Final = OPTIONS
    running: Final = "Touching {} …"
    deletes: Final = False
    is_waited_for: Final = True
    waits_with_table: Final = False

    def request(self, wanted: TableRequest, *, synchronous: bool) -> Mapping[str, Any]:
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

    def asked(self, body: TouchPayload, document: Mapping[str, Any], sources: RequestSources) -> AskedTask:
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
        return AskedTask(
            task_id=_id_of(touch),
            task_type=NAME,
            payload=touch.model_dump_json(),
            obstacle=lambda _task: None,
            replays=lambda task: task.status is Status.SUCCESS,
            resumes=lambda _task: False,
            callback=callback_of(parameters.properties, sources.callbacks()),
            deadline=DEADLINE,
        )


TOUCH_FORM = TouchForm()
