"""`GET /v1/config` with what states that keys are honoured, and for how long.

Two forms: the Idempotency-Key proposal's entries in `properties` ("Discovery"), and the member
`idempotency-key-lifetime` of Iceberg's CatalogConfig (Iceberg REST Catalog API), by which Iceberg's clients send keys.
"""

import json
from datetime import timedelta
from typing import Any, Final

from delegation.gateway.answers import json_answer
from delegation.gateway.forwarding import without
from delegation.gateway.messages import CatalogAnswer, CatalogRequest

SUPPORTED: Final = "idempotency-key-supported"
LIFETIME: Final = "idempotency-key-lifetime"


def readable(request: CatalogRequest) -> CatalogRequest:
    """Return the request so that its answer can be read: without compression, and whole whatever the client has."""
    headers = without(request.headers, "accept-encoding", "if-none-match", "if-modified-since", "range")
    return CatalogRequest(
        request.method, request.path, request.query, (*headers, ("Accept-Encoding", "identity")), request.body
    )


def advertised(answer: CatalogAnswer, lifetime: timedelta | None) -> CatalogAnswer:
    """Return the catalog's configuration with both forms; without a lifetime keys are not honoured.

    What else the catalog states stays, its own lifetime too while the gateway honours no keys. An answer that is no
    CatalogConfig is returned unchanged.
    """
    document = _document(answer)
    if document is None:
        return answer
    given = document.get("properties")
    properties = dict(given) if isinstance(given, dict) else {}
    properties[SUPPORTED] = "false" if lifetime is None else "true"
    if lifetime is not None:
        properties[LIFETIME] = document[LIFETIME] = duration_text(lifetime)
    changed = json_answer(answer.status, {**document, "properties": properties})
    kept = without(answer.headers, "content-type", "content-encoding", "etag")
    return CatalogAnswer(answer.status, (*kept, *changed.headers), changed.body)


def duration_text(duration: timedelta) -> str:
    """Return whole seconds in ISO 8601, such as `PT30M`, which Java's Duration reads."""
    seconds = int(duration.total_seconds())
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if number]
    return "PT" + ("".join(parts) or "0S")


def _document(answer: CatalogAnswer) -> dict[str, Any] | None:
    if answer.status != 200 or answer.header("Content-Encoding") not in {None, "", "identity"}:
        return None
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
