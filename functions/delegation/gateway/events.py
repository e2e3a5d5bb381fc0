"""Events and answers of a REST API's Lambda proxy integration as requests and answers of the catalog. Source: API
Gateway Developer Guide, "Lambda proxy integrations in API Gateway". `requestContext.path` is still encoded; query
parameters come decoded."""

import base64
import gzip
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from delegation.gateway.answers import answer_of
from delegation.gateway.errors import CatalogAnswerTooLarge, NotTheCatalog, UnsafePath
from delegation.gateway.messages import CatalogAnswer, CatalogRequest, Headers
from delegation.identifiers import encoded, encoded_query

LARGEST_ANSWER: Final = 6_000_000
"""Bytes of an answer as JSON; a Lambda returns at most 6 MB (AWS Lambda Developer Guide, "Lambda quotas")."""
_ENCODING: Final = "Content-Encoding"
_REPLACED: Final = encoded("\N{REPLACEMENT CHARACTER}")

Serve = Callable[[CatalogRequest], CatalogAnswer]


def answer_event(event: Mapping[str, Any], serve: Serve, base_path: str) -> dict[str, Any]:
    """Serve an event whose catalog is at `base_path`, such as `/api/catalog`."""
    try:
        request = request_of(event, base_path)
    except (NotTheCatalog, UnsafePath) as error:
        return event_of(answer_of(error), ())
    answer = serve(request)
    try:
        return event_of(answer, request.headers)
    except CatalogAnswerTooLarge as error:
        return event_of(answer_of(error), ())


def request_of(event: Mapping[str, Any], base_path: str) -> CatalogRequest:
    """Return the event's request; raises NotTheCatalog and UnsafePath."""
    body = event.get("body") or ""
    return CatalogRequest(
        str(event["httpMethod"]).upper(),
        _path(event, base_path.rstrip("/")),
        _query(event.get("multiValueQueryStringParameters") or {}),
        _pairs(event.get("multiValueHeaders") or {}),
        base64.b64decode(body) if event.get("isBase64Encoded") else body.encode(),
    )


def _query(parameters: Mapping[str, Any]) -> str:
    """Return the query encoded again: a blank as %20, which every server decodes, and `=` after each name. Raises
    UnsafePath for bytes that are not UTF-8: the event has replaced them."""
    query = encoded_query((name, str(value)) for name, values in parameters.items() for value in values)
    if _REPLACED in query:
        raise UnsafePath("bytes in its query that are not UTF-8")
    return query


def _path(event: Mapping[str, Any], base: str) -> str:
    """Return the path below the base; the stage, or a base path mapping, may come before it."""
    path = str((event.get("requestContext") or {}).get("path") or event["path"])
    shorter = "/" + path.lstrip("/").partition("/")[2]
    for each in (path, shorter):
        if each.startswith(f"{base}/"):
            return each.removeprefix(f"{base}/")
    raise NotTheCatalog(
        f"the path does not begin with {base}/, where this gateway has the catalog (DELEGATION_GATEWAY_BASE_PATH)"
    )


def event_of(answer: CatalogAnswer, asked: Headers) -> dict[str, Any]:
    """Return the answer as an event, compressed if it is too large otherwise; `asked` are the request's headers. Raises
    CatalogAnswerTooLarge."""
    made = _event_of(answer)
    if _size(made) > LARGEST_ANSWER and answer.header(_ENCODING) is None and _accepts_gzip(asked):
        headers = (*answer.headers, (_ENCODING, "gzip"))
        made = _event_of(CatalogAnswer(answer.status, headers, gzip.compress(answer.body, mtime=0)))
    if _size(made) > LARGEST_ANSWER:
        raise CatalogAnswerTooLarge(answer.status, len(answer.body), LARGEST_ANSWER)
    return made


def _event_of(answer: CatalogAnswer) -> dict[str, Any]:
    headers: dict[str, list[str]] = {}
    for name, value in answer.headers:
        headers.setdefault(name, []).append(value)
    try:
        text, is_encoded = answer.body.decode(), False
    except UnicodeDecodeError:
        text, is_encoded = base64.b64encode(answer.body).decode(), True
    return {"statusCode": answer.status, "multiValueHeaders": headers, "body": text, "isBase64Encoded": is_encoded}


def _size(event: Mapping[str, Any]) -> int:
    """Return the bytes of an event; only a body that may be too large is measured exactly."""
    body = event["body"]
    return len(body) if len(body) < LARGEST_ANSWER // 6 else len(json.dumps(event).encode())


def _accepts_gzip(headers: Headers) -> bool:
    accepted = [value for name, value in headers if name.lower() == "accept-encoding"]
    codings = [each.strip().lower().replace(" ", "") for value in accepted for each in value.split(",")]
    return any(each.partition(";")[0] == "gzip" and not each.endswith(";q=0") for each in codings)


def _pairs(headers: Mapping[str, Any]) -> Headers:
    return tuple((name, value) for name, values in headers.items() for value in values or ())
