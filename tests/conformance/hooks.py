"""Loaded by schemathesis: leads its requests past the first refusal, and writes a line for each of them.

It runs in the environment of schemathesis, which has neither the service nor its libraries. Environment variables:
CASES (the file for the lines), REALM, WAREHOUSE, TASKS (ids of tasks, with commas), CODES (codes.json), OURS (our
document as JSON, only when another document is tried).
"""

import hashlib
import json
import os
import re
import threading
import uuid
from pathlib import Path
from typing import Any

import jsonschema_rs
import schemathesis

from tests.conformance import foreseen

_LOCK = threading.Lock()
_LINES = Path(os.environ["CASES"]).open("a", encoding="utf-8")  # noqa: SIM115  open as long as the process runs
_CODES = foreseen.described_codes(Path(os.environ["CODES"]).read_text(encoding="utf-8"))
_TASKS = os.environ["TASKS"].split(",")
_KEY = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def _validator() -> Any:
    if "OURS" not in os.environ:
        return None
    document = json.loads(Path(os.environ["OURS"]).read_text(encoding="utf-8"))
    schema = {"$ref": "#/components/schemas/TaskPayload", "components": document["components"]}
    # Without the other form: a body of the appendix has no form to choose.
    purge = {"$ref": "#/components/schemas/PurgeTableOperationParameters"}
    schema["components"]["schemas"]["TaskPayload"]["properties"]["operation_parameters"] = purge
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


_OURS = _validator()


def _digest(value: object) -> bytes:
    return hashlib.sha256(json.dumps(value, default=str, sort_keys=True).encode()).digest()


def _write(**members: object) -> None:
    with _LOCK:
        _LINES.write(json.dumps(members) + "\n")
        _LINES.flush()


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Name the stack's realm and warehouse and a known task in most requests, and use a key for one request alone.

    Only values of the right type are replaced, so what was made to be refused is refused still.
    """
    digest = _digest([case.body if isinstance(case.body, dict) else None, case.query])
    if isinstance(case.body, dict) and digest[0] % 16:
        _lead_body(case.body, digest)
    headers = case.headers
    key = headers.get("Idempotency-Key") if headers else None
    if isinstance(key, str) and _KEY.fullmatch(key):
        headers["Idempotency-Key"] = f"{digest.hex()[:16]}-{key}"[:255]
    task = (case.path_parameters or {}).get("taskId")
    if isinstance(task, str) and _UUID.fullmatch(task) and task not in _TASKS and _phase(case) != "stateful":
        chosen = _digest(task)
        if chosen[0] % 4:
            case.path_parameters["taskId"] = _TASKS[chosen[1] % len(_TASKS)]


def _lead_body(body: dict[str, Any], digest: bytes) -> None:
    """Replace what the service would refuse first: another realm, and values that only the appendix admits."""
    common, parameters = _object(body, "common_payload"), _object(body, "operation_parameters")
    _replace(common, "realm_identifier", str, os.environ["REALM"])
    if _OURS is not None:
        _replace(common, "polaris_correlation_id", str, f"generated-{digest.hex()[:8]}")
        _replace(_object(parameters, "metadata"), "format-version", int, 1 + digest[2] % 3)
    # Hypothesis likes one UUID, and a table's purge that fails again and again has to wait.
    metadata, unique = _object(parameters, "metadata"), str(uuid.UUID(bytes=digest[:16]))
    if digest[3] % 4 and _UUID.fullmatch(str(metadata.get("table-uuid"))):
        _replace(metadata, "table-uuid", str, unique)
    identity = _object(parameters, "table_identity")
    if digest[1] % 2 or _OURS is not None:
        _replace(identity, "catalog_name", str, os.environ["WAREHOUSE"])
    if _OURS is not None:
        _replace(identity, "table_entity_id", str, digest.hex()[:8])
        _replace(identity, "table_name", str, f"t_{digest.hex()[:8]}")
        if identity.get("namespace_levels") == [] or _texts(identity.get("namespace_levels")):
            identity["namespace_levels"] = ["shop"]


def _object(holder: dict[str, Any], name: str) -> dict[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _replace(holder: dict[str, Any], name: str, kind: type, value: object) -> None:
    if type(holder.get(name)) is kind:
        holder[name] = value


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Note the answer, and the tasks that the service made."""
    answer = _answer(response)
    task = answer.get("delegation_task_id")
    if response.status_code in {200, 202} and isinstance(task, str) and len(_TASKS) < 200 and task not in _TASKS:
        _TASKS.append(task)
    code = answer.get("error_code") if response.status_code >= 400 else None
    linked = _phase(case) == "stateful" and (case.path_parameters or {}).get("taskId") in _TASKS
    _write(
        operation=case.operation.label,
        status=response.status_code,
        code=code,
        linked=linked,
        foreseen=response.status_code < 500 or foreseen.server_error(response.status_code, code, _CODES),
    )


@schemathesis.hook
def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Drop the failures that a caller must expect, and count them by their reason."""
    answer, kind, reason = _answer(response), type(failure).__name__, None
    if kind == "ServerError" and foreseen.server_error(response.status_code, answer.get("error_code"), _CODES):
        reason = f"{response.status_code} {answer['error_code']} is described"
    elif kind == "RejectedPositiveData":
        reason = foreseen.refusal(case.operation.path, response.status_code, answer)
        if reason is None and _OURS is not None:
            places = [list(error.instance_path) for error in _OURS.iter_errors(case.body)]
            reason = foreseen.limit(response.status_code, answer, places)
    elif kind == "ResponseTimeExceeded":
        reason = foreseen.slow(case.operation.path, failure.elapsed)
    if reason is None:
        return True
    _write(dropped=reason)
    return False


def _answer(response: Any) -> dict[str, Any]:
    try:
        found = json.loads(response.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _phase(case: Any) -> str | None:
    return case.meta.phase.name.value if case.meta is not None else None
