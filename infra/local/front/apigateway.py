"""API Gateway's processing between a request and a Lambda: events, the authorizer's verdict, answers; without I/O.

Sources: API Gateway developer guide, "Lambda proxy integrations" (input and output format, REST API), "Use API Gateway
Lambda authorizers" (input of a REQUEST authorizer, output), "Gateway response types", "mutual TLS" (`clientCert`).
"""

import base64
import binascii
import fnmatch
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from infra.gateway_answers import ANSWERS

STAGE = "live"
# Headers of a Lambda's answer that API Gateway renames (API Gateway developer guide, "Amazon API Gateway important
# notes").
_REMAPPED = frozenset({"connection", "content-length", "date", "server", "transfer-encoding", "www-authenticate"})


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One HTTP request; `target` is that of the request line, `certificate` the client's in DER, empty without one."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    body: bytes = field(repr=False)
    certificate: bytes = field(repr=False)
    source_ip: str
    received: datetime
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LocalApiGateway:
    """A REST API with `{proxy+}` behind a custom domain whose mapping is `base_path`.

    With `vpc_endpoint` it is a private API behind a load balancer, which ends TLS and passes the certificate on in
    headers, if it asks for one; otherwise API Gateway ends TLS. `encodes_bodies` is the binary media type */*.
    """

    domain: str
    base_path: str
    region: str
    account: str
    api_id: str = "local00api"
    vpc_endpoint: str | None = None
    encodes_bodies: bool = False

    def route(self, request: ApiRequest) -> str | None:
        """Return the path after the base path ("/" at least), or None if the domain has no such mapping."""
        path = unquote(urlsplit(request.target).path)
        if path == self.base_path:
            return "/"
        return path.removeprefix(self.base_path) if path.startswith(f"{self.base_path}/") else None

    def proxy_event(self, request: ApiRequest, route: str, authorizer: Mapping[str, str]) -> dict[str, Any]:
        """Return the event of the Lambda proxy integration, payload format 1.0."""
        text, encoded = _body(request.body, is_binary=self.encodes_bodies)
        event = self._common(request, route)
        event["requestContext"]["authorizer"] = dict(authorizer)
        return {**event, "body": text, "isBase64Encoded": encoded}

    def authorizer_event(self, request: ApiRequest, route: str) -> dict[str, Any]:
        """Return the event of a REQUEST authorizer, which does not contain the body."""
        return {"type": "REQUEST", "methodArn": self.method_arn(request, route), **self._common(request, route)}

    def method_arn(self, request: ApiRequest, route: str) -> str:
        """Return the ARN that the authorizer's policy must allow."""
        api = f"arn:aws:execute-api:{self.region}:{self.account}:{self.api_id}"
        return f"{api}/{STAGE}/{request.method}{route}"

    def _common(self, request: ApiRequest, route: str) -> dict[str, Any]:
        url = urlsplit(request.target)
        behind_mutual_tls = self.vpc_endpoint is not None and request.certificate
        passed_on = alb_headers(request.certificate) if behind_mutual_tls else []
        headers = [*request.headers, *passed_on, *self._forwarded(request)]
        query = parse_qsl(url.query, keep_blank_values=True)
        resource = "/" if route == "/" else "/{proxy+}"
        return {
            "resource": resource,
            "path": unquote(url.path),
            "httpMethod": request.method,
            "headers": dict(headers),
            "multiValueHeaders": _grouped(headers),
            "queryStringParameters": dict(query) or None,
            "multiValueQueryStringParameters": _grouped(query) or None,
            "pathParameters": None if route == "/" else {"proxy": route.removeprefix("/")},
            "stageVariables": None,
            "requestContext": {
                "accountId": self.account,
                "apiId": self.api_id,
                "domainName": self.domain,
                "domainPrefix": self.domain.partition(".")[0],
                "extendedRequestId": request.request_id,
                "httpMethod": request.method,
                "identity": {**_identity(request), **self._connection(request)},
                "path": url.path,
                "protocol": "HTTP/1.1",
                "requestId": request.request_id,
                "requestTime": f"{request.received:%d/%b/%Y:%H:%M:%S %z}",
                "requestTimeEpoch": int(request.received.timestamp() * 1000),
                "resourceId": "local0",
                "resourcePath": resource,
                "stage": STAGE,
            },
        }

    def _connection(self, request: ApiRequest) -> dict[str, Any]:
        """Return the part of `identity` that tells how the caller is connected."""
        if self.vpc_endpoint is None:
            return {"clientCert": client_cert(request.certificate)}
        return {"vpcId": "vpc-local", "vpceId": self.vpc_endpoint}

    @staticmethod
    def _forwarded(request: ApiRequest) -> list[tuple[str, str]]:
        trace = f"Root=1-{int(request.received.timestamp()):08x}-{uuid.UUID(request.request_id).hex[:24]}"
        return [
            ("X-Amzn-Trace-Id", trace),
            ("X-Forwarded-For", request.source_ip),
            ("X-Forwarded-Port", "443"),
            ("X-Forwarded-Proto", "https"),
        ]


def client_cert(certificate: bytes) -> dict[str, Any]:
    """Return `requestContext.identity.clientCert` for a DER certificate."""
    parsed = x509.load_der_x509_certificate(certificate)
    serial = f"{parsed.serial_number:x}"
    serial = serial.zfill(len(serial) + len(serial) % 2)
    return {
        "clientCertPem": parsed.public_bytes(Encoding.PEM).decode(),
        "subjectDN": _distinguished_name(parsed.subject),
        "issuerDN": _distinguished_name(parsed.issuer),
        "serialNumber": ":".join(serial[at : at + 2] for at in range(0, len(serial), 2)),
        "validity": {
            "notBefore": _openssl_time(parsed.not_valid_before_utc),
            "notAfter": _openssl_time(parsed.not_valid_after_utc),
        },
    }


def alb_headers(certificate: bytes) -> list[tuple[str, str]]:
    """Return the headers with which a load balancer in the mode "verify" passes a DER certificate on.

    Application Load Balancers guide, "Mutual TLS authentication". What becomes of such a header that the client sends
    is not documented; here both arrive.
    """
    parsed = x509.load_der_x509_certificate(certificate)
    begins, ends = parsed.not_valid_before_utc, parsed.not_valid_after_utc
    return [
        ("X-Amzn-Mtls-Clientcert-Serial-Number", f"{parsed.serial_number:X}"),
        ("X-Amzn-Mtls-Clientcert-Issuer", parsed.issuer.rfc4514_string()),
        ("X-Amzn-Mtls-Clientcert-Subject", parsed.subject.rfc4514_string()),
        (
            "X-Amzn-Mtls-Clientcert-Validity",
            f"NotBefore={begins:%Y-%m-%dT%H:%M:%SZ};NotAfter={ends:%Y-%m-%dT%H:%M:%SZ}",
        ),
        ("X-Amzn-Mtls-Clientcert-Leaf", quote(parsed.public_bytes(Encoding.PEM).decode(), safe="+=/")),
    ]


def verdict(error: str | None, payload: bytes, method_arn: str) -> "dict[str, str] | Response":
    """Return the context for the integration if the authorizer admits the caller, otherwise the refusal."""
    answer = json.loads(payload)
    if error:
        refused = isinstance(answer, dict) and answer.get("errorMessage") == "Unauthorized"
        return UNAUTHORIZED if refused else AUTHORIZER_FAILURE
    try:
        statements = answer["policyDocument"]["Statement"]
        effects = {
            statement["Effect"]
            for statement in ([statements] if isinstance(statements, dict) else statements)
            if _matches(statement["Action"], "execute-api:Invoke") and _matches(statement["Resource"], method_arn)
        }
        context = {name: _context_text(value) for name, value in (answer.get("context") or {}).items()}
        context["principalId"] = str(answer["principalId"])
    except (KeyError, TypeError, ValueError):
        return AUTHORIZER_FAILURE
    if "Deny" in effects:
        return EXPLICITLY_DENIED
    return context if "Allow" in effects else DENIED


def integration_response(error: str | None, payload: bytes, request_id: str) -> Response:
    """Return the HTTP response for the integration's result, with its body byte for byte."""
    answer = json.loads(payload)
    if error or not isinstance(answer, dict):
        return MALFORMED
    try:
        status = int(answer["statusCode"])
        text = answer.get("body") or ""
        body = base64.b64decode(text, validate=True) if answer.get("isBase64Encoded") else text.encode()
        single: dict[str, Any] = answer.get("headers") or {}
        multiple: dict[str, list[Any]] = answer.get("multiValueHeaders") or {}
        repeated = {name.lower() for name in multiple}
        headers = [(name, value) for name, values in multiple.items() for value in values]
        headers += [(name, value) for name, value in single.items() if name.lower() not in repeated]
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
        return MALFORMED
    named = [(_response_header(name), str(value)) for name, value in headers]
    if "content-type" not in {name.lower() for name, _ in named}:
        named.append(("Content-Type", "application/json"))
    return Response(status, (*named, ("x-amzn-RequestId", request_id)), body)


def gateway_response(kind: str, status: int, error_type: str, message: str) -> Response:
    """Return API Gateway's answer of a response type; `status` and `message` are API Gateway's defaults."""
    answer = ANSWERS[kind]
    headers = {"Content-Type": "application/json", "x-amzn-ErrorType": error_type, **answer.headers}
    return Response(
        answer.status or status, tuple(headers.items()), answer.body(json.dumps(answer.message or message)).encode()
    )


def bad_request(message: str) -> Response:
    """Return the answer to a request that API Gateway does not accept."""
    return gateway_response("DEFAULT_4XX", 400, "BadRequestException", message)


_NOT_AUTHORIZED = "User is not authorized to access this resource"
UNAUTHORIZED = gateway_response("UNAUTHORIZED", 401, "UnauthorizedException", "Unauthorized")
DENIED = gateway_response("ACCESS_DENIED", 403, "AccessDeniedException", _NOT_AUTHORIZED)
EXPLICITLY_DENIED = gateway_response(
    "ACCESS_DENIED", 403, "AccessDeniedException", f"{_NOT_AUTHORIZED} with an explicit deny"
)
TOO_LARGE = gateway_response("REQUEST_TOO_LARGE", 413, "RequestTooLargeException", "Request Too Long")
THROTTLED = gateway_response("THROTTLED", 429, "TooManyRequestsException", "Too Many Requests")
AUTHORIZER_FAILURE = gateway_response(
    "AUTHORIZER_FAILURE", 500, "AuthorizerConfigurationException", "Internal server error"
)
MALFORMED = gateway_response("DEFAULT_5XX", 502, "InternalServerErrorException", "Internal server error")
TIMED_OUT = gateway_response("INTEGRATION_TIMEOUT", 504, "InternalServerErrorException", "Endpoint request timed out")
# The domain answers here, not the API, so gateway responses do not apply.
NO_MAPPING = Response(
    403, (("Content-Type", "application/json"), ("x-amzn-ErrorType", "ForbiddenException")), b'{"message":"Forbidden"}'
)


def _identity(request: ApiRequest) -> dict[str, Any]:
    agent = next((value for name, value in request.headers if name.lower() == "user-agent"), None)
    unused = dict.fromkeys(("accessKey", "accountId", "apiKey", "apiKeyId", "caller", "user", "userArn"))
    return {
        **unused,
        "sourceIp": request.source_ip,
        "userAgent": agent,
    }


def _body(body: bytes, *, is_binary: bool) -> tuple[str | None, bool]:
    if not body:
        return None, False
    if is_binary:
        return base64.b64encode(body).decode(), True
    try:
        return body.decode(), False
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), True


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return groups


def _distinguished_name(name: x509.Name) -> str:
    # In the certificate's order, as API Gateway writes it; `rfc4514_string` of a whole name reverses it.
    return ",".join(rdn.rfc4514_string() for rdn in name.rdns)


def _openssl_time(moment: datetime) -> str:
    moment = moment.astimezone(UTC)
    return f"{moment:%b} {moment.day:>2} {moment:%H:%M:%S %Y} GMT"


def _matches(patterns: str | list[str], value: str) -> bool:
    listed = [patterns] if isinstance(patterns, str) else patterns
    return any(fnmatch.fnmatchcase(value, pattern.replace("[", "[[]")) for pattern in listed)


def _context_text(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("an authorizer's context holds only strings, numbers and booleans")


def _response_header(name: str) -> str:
    return f"x-amzn-Remapped-{name}" if name.lower() in _REMAPPED else name
