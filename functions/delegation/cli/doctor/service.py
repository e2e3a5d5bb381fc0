"""The path from this machine to the service: certificate, handshake, token, authorizer, and the service's health."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from delegation.cli.doctor.checks import CheckResult, failed, not_checked, passed
from delegation.cli.screens import duration_text, plain
from delegation.client.conversations import with_query
from delegation.client.errors import ClientMisconfigured
from delegation.client.settings import BASE_PATH, ClientSettings
from delegation.polaris.answers import PolarisError, PolarisUnavailable
from delegation.polaris.requests import ClientCredentials, OAuth2TokenSource
from delegation.polaris.transport import RequestRetries, Transport
from delegation.timestamps import utc_now
from delegation.wiring.types import TYPES

CERTIFICATE: Final = "certificate"
HANDSHAKE: Final = "handshake"
TOKEN: Final = "token"  # noqa: S105 - the name of a check
AUTHORIZER: Final = "authorizer"
REALM: Final = "realm"
MAINTENANCE: Final = "maintenance"
_SOON: Final = timedelta(days=14)
_SKEW: Final = timedelta(seconds=30)
_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)
_ONCE: Final = RequestRetries(attempts=1)
_CAUSES: Final[Mapping[str, str]] = {
    "STORE_UNAVAILABLE": "check the task table's state and the role of the API's function",
    "POLARIS_UNAVAILABLE": "check that Polaris runs, and that the service's network reaches it",
    "POLARIS_UNAUTHORIZED": "correct the secret in AWS Secrets Manager (page Deploying to AWS, The first deployment)",
    "POLARIS_MISCONFIGURED": "correct the secret, the realm or delegation:polaris-scope",
}
_ALERTS: Final[Mapping[str, str]] = {
    "UNKNOWN_CA": "the service's trust store lacks the CA of the client certificate",
    "CERTIFICATE_REQUIRED": "the service demands a client certificate, and none was sent",
    "CERTIFICATE_EXPIRED": "the service refuses the client certificate as expired",
    "CERTIFICATE_REVOKED": "the service refuses the client certificate as revoked",
    "BAD_CERTIFICATE": "the service refuses the client certificate",
    "CERTIFICATE_UNKNOWN": "the service refuses the client certificate",
}

_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")
"""OpenSSL's reasons for an answer that is not TLS."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


def open_http(tls: ssl.SSLContext) -> httpx.Client:
    return httpx.Client(verify=tls, timeout=_TIMEOUT)


@dataclass(frozen=True, slots=True)
class ServiceCheck:
    """Checks the connection of one identity; `http` opens clients."""

    settings: ClientSettings
    http: Callable[[ssl.SSLContext], httpx.Client] = field(default=open_http)
    clock: Callable[[], datetime] = field(default=utc_now)

    def findings(self) -> Iterator[CheckResult]:
        """Yield a finding for each part; what needs a broken part is not checked."""
        certificate = check_certificate(self.settings.client_cert, self.settings.client_key, self.clock())
        yield certificate
        try:
            service, issuer = self.settings.mutual_tls(), self.settings.token_tls()
        except ClientMisconfigured as error:
            yield failed(
                HANDSHAKE,
                str(error),
                "Correct ca_cert, client_cert or client_key; the key must belong to the certificate.",
            )
            yield from (not_checked(name, "needs a handshake") for name in (TOKEN, AUTHORIZER))
            return
        with self.http(service) as client, self.http(issuer) as at_issuer:
            handshake = self._handshake(client)
            yield handshake
            token = self._token(at_issuer)
            yield (
                token if isinstance(token, CheckResult) else passed(TOKEN, f"{self.settings.token_url} issued a token")
            )
            if not handshake.ok or isinstance(token, CheckResult):
                yield not_checked(AUTHORIZER, "needs a successful handshake and a token")
                return
            yield from self._admitted(client, token)

    def _handshake(self, client: httpx.Client) -> CheckResult:
        url = self.settings.edge_url
        try:
            response = client.get(f"{url.rstrip('/')}/v1/health")
        except httpx.TransportError as error:
            return plain_address(HANDSHAKE, "edge_url", url, None, error) or handshake_failure(url, error)
        has_base = url.rstrip("/").endswith(BASE_PATH)
        if _object(response).get("status") in {"up", "down"} or (has_base and response.status_code in {401, 403}):
            return passed(HANDSHAKE, f"{url} accepts the certificate")
        return plain_address(HANDSHAKE, "edge_url", url, response.status_code) or failed(
            HANDSHAKE,
            f"{url} answers {response.status_code}, but is not the service",
            "Correct edge_url. It names another server." if has_base else f"edge_url must end with {BASE_PATH}.",
        )

    def _token(self, client: httpx.Client) -> str | CheckResult:
        settings = self.settings
        credentials = ClientCredentials(settings.client_id, settings.client_secret)
        source = OAuth2TokenSource(
            settings.token_url,
            lambda: credentials,
            clock=self.clock,
            scope=settings.scope,
            transport=Transport(client, backoff=_ONCE),
        )
        try:
            return source.token()
        except PolarisError as error:
            address = settings.token_url
            by_oauth = error.error_type is not None
            plain = None if by_oauth else plain_address(TOKEN, "token_url", address, error.status, error.__cause__)
            return plain or token_failure(settings, error)

    def _admitted(self, client: httpx.Client, token: str) -> Iterator[CheckResult]:
        url = f"{self.settings.edge_url.rstrip('/')}/v1/health"
        try:
            response = client.get(url, headers={"Authorization": f"Bearer {token}"})
        except httpx.TransportError as error:
            yield failed(
                AUTHORIZER, f"the request with a token failed: {type(error).__name__}", "Try again in a moment."
            )
            return
        body = _object(response)
        if response.status_code in {401, 403} or body.get("status") not in {"up", "down"}:
            yield self._refused(response, body)
            return
        yield passed(AUTHORIZER, f"admits the certificate and the token, release {body.get('version', 'unknown')}")
        if "realm" in body:
            yield self._realm(str(body["realm"]))
        for each in body.get("dependencies") or ():
            yield dependency(each)
        yield from map(paused, body.get("paused") or ())
        yield self._maintenance(client, token)

    def _maintenance(self, client: httpx.Client, token: str) -> CheckResult:
        """Return whether the service's recurring tasks recur: one that was cancelled or failed comes back later."""
        ended: list[Mapping[str, Any]] = []
        for kind in sorted(TYPES.own):
            try:
                path = with_query("v1/tasks", {"type": kind, "status": "FAILURE"})
                url = f"{self.settings.edge_url.rstrip('/')}/{path}"
                response = client.get(url, headers={"Authorization": f"Bearer {token}"})
            except httpx.TransportError as error:
                return not_checked(MAINTENANCE, f"the service did not answer: {type(error).__name__}")
            if response.status_code != 200:
                return not_checked(MAINTENANCE, f"this identity may not list tasks ({response.status_code})")
            ended += _object(response).get("tasks") or ()
        if not ended:
            return passed(MAINTENANCE, "the service's own recurring tasks work")
        about = [[plain(str(task.get(name))) for name in ("task_type", "task_id", "error_code")] for task in ended]
        named = ", ".join(f"{task_type} {task_id} ({code})" for task_type, task_id, code in about)
        ids = " ".join(task_id for _, task_id, _ in about)
        fix = f"Maintenance restarts after its interval. To restart it now: delegation tasks retry {ids}"
        return failed(MAINTENANCE, f"these tasks of the service failed: {named}", fix)

    def _refused(self, response: httpx.Response, body: Mapping[str, Any]) -> CheckResult:
        message = plain(str(body.get("message") or body.get("error_code") or response.reason_phrase))[:200]
        if response.status_code == 401:
            skew = _skew(response, self.clock())
            clock = (
                f" The clocks differ by {duration_text(skew.total_seconds())}. Set this machine's clock."
                if skew
                else ""
            )
            fix = "Compare the token with delegation:token-issuer, -audience, and -jwks-url or -public-key."
            return failed(AUTHORIZER, f"refuses the token (401: {message})", fix + clock)
        if response.status_code == 403:
            subject = _subject(self.settings.client_cert)
            fix = (
                f"Admit {subject} in delegation:operator-subjects or delegation:client-subject; the token needs the "
                f"scope of that identity (it has {self.settings.scope})."
            )
            return failed(AUTHORIZER, f"refuses the certificate or the scope (403: {message})", fix)
        return failed(
            AUTHORIZER, f"answers {response.status_code}: {message}", "Look at the log of the API's function."
        )

    def _realm(self, served: str) -> CheckResult:
        if served == self.settings.realm:
            return passed(REALM, served)
        fix = f"Set realm (DELEGATION_REALM) to {served}, or call the deployment of your realm."
        return failed(REALM, f"the deployment serves {served}, the setting is {self.settings.realm}", fix)


def check_certificate(cert: Path | None, key: Path | None, now: datetime) -> CheckResult:
    if cert is None:
        return failed(
            CERTIFICATE, "no client certificate is set", "Set operator_cert and operator_key, or client_cert."
        )
    if not (Path(cert).is_file() and Path(key or cert).is_file()):
        missing = cert if not Path(cert).is_file() else key
        return failed(
            CERTIFICATE, f"{missing} does not exist", "Correct the path. `delegation certs init` makes a certificate."
        )
    try:
        from cryptography import x509  # noqa: PLC0415 - installed where the service is

        certificate = x509.load_pem_x509_certificate(Path(cert).read_bytes())
    except ModuleNotFoundError:
        return not_checked(CERTIFICATE, "the module cryptography is not installed")
    except (OSError, ValueError):
        return failed(CERTIFICATE, f"{cert} is not a readable PEM certificate", "Give a PEM file that you may read.")
    name, ends = certificate.subject.rfc4514_string(), certificate.not_valid_after_utc
    if not certificate.not_valid_before_utc <= now <= ends:
        state = "expired" if now > ends else "is not valid before"
        moment = ends if now > ends else certificate.not_valid_before_utc
        fix = "Renew the certificate: `delegation certs rotate NAME`, or have its CA issue a new certificate."
        return failed(CERTIFICATE, f"{name} {state} {moment:%Y-%m-%d %H:%M} UTC", fix)
    soon = ", which is soon: renew it (`delegation certs rotate`)" if ends - now < _SOON else ""
    return passed(CERTIFICATE, f"{name} until {ends:%Y-%m-%d}{soon}")


def plain_address(
    name: str, setting: str, url: str, status: int | None, error: BaseException | None = None
) -> CheckResult | None:
    """Return that an address without TLS causes a failure, None if it starts with https:// or is served."""
    refused_here = isinstance(error, httpx.ConnectError) and urlsplit(url).hostname in _LOOPBACK
    if not url.startswith("http://") or refused_here or status not in {None, 400, 301, 302, 307, 308}:
        return None
    answer = "no answer came" if status is None else f"the answer is {status}"
    return failed(name, f"{url} begins with http://, and {answer}", f"Set {setting} to the address with https://.")


def handshake_failure(url: str, error: httpx.TransportError) -> CheckResult:
    """Return why no connection was made, as far as the error shows."""
    cause = _tls_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        reason = cause.verify_message
        fix = "Set ca_cert to the CA that issued the service's certificate."
        if "ostname" in reason or "IP address" in reason:
            fix = "Use the name in the service's certificate in edge_url."
        elif "expired" in reason:
            fix = "Have the service's certificate renewed, and check this machine's clock."
        return failed(HANDSHAKE, f"the certificate of {url} is not trusted: {reason}", fix)
    if cause is not None:
        code = (cause.reason or "").upper()
        if any(reason in code for reason in _NOT_TLS):
            return failed(HANDSHAKE, f"{url} does not speak TLS", "Correct the host and the port in edge_url.")
        failure = next((text for alert, text in _ALERTS.items() if alert in code), f"TLS failed: {cause.reason}")
        fix = (
            "Use a certificate of the CA in the deployment's trust store (page Deploying to AWS, The first deployment)."
        )
        return failed(HANDSHAKE, failure, fix)
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        fix = "Check edge_url, the DNS name and the network; `delegation local up` starts a service on this machine."
        return failed(HANDSHAKE, f"{url} cannot be reached: {error or type(error).__name__}", fix)
    fix = (
        "A server that closes without an answer often refuses the client certificate. Check the certificate and the "
        "trust store."
    )
    return failed(HANDSHAKE, f"{url} closed the connection: {type(error).__name__}", fix)


def token_failure(settings: ClientSettings, error: PolarisError) -> CheckResult:
    if error.status is None and isinstance(error, PolarisUnavailable):
        return failed(TOKEN, f"{settings.token_url} cannot be reached", "Check token_url and the network.")
    answer = f"{error.status} {error.error_type or ''}".strip()
    if error.error_type == "invalid_scope":
        fix = f"At the issuer, allow {settings.client_id} the scope {settings.scope}, or correct scope."
        return failed(TOKEN, f"the issuer refuses the scope {settings.scope} ({answer})", fix)
    if error.status in {400, 401, 403}:
        fix = "Correct client_id and client_secret (operator_client_id and operator_client_secret)."
        return failed(TOKEN, f"the issuer refuses the client {settings.client_id} ({answer})", fix)
    return failed(TOKEN, f"{settings.token_url} answers {answer}", "Check token_url, and read the issuer's log.")


def dependency(entry: Mapping[str, Any]) -> CheckResult:
    name, code = f"service: {plain(str(entry.get('name')))}", entry.get("error_code")
    if entry.get("ok"):
        return passed(name, "reachable for the service")
    fix = _CAUSES.get(str(code), "look at the log of the API's function for this code")
    return failed(name, f"the service cannot use it ({code})", fix[:1].upper() + fix[1:] + ".")


def paused(entry: Mapping[str, Any]) -> CheckResult:
    """Return a pause reported by the service; the tasks that it covers do not run."""
    what = str(entry.get("table") or entry.get("realm") or "all tasks")
    by, reason = entry.get("by") or {}, entry.get("reason")
    who = plain(str(by.get("client_id", "unknown") if isinstance(by, Mapping) else by))
    why = f": {plain(str(reason))}" if reason else ""
    option = f" --table {plain(what)}" if entry.get("table") else " --realm" if entry.get("realm") else ""
    detail = f"{plain(what)} by {who} since {plain(str(entry.get('since')))}{why}"
    return failed("paused", detail, f"When the reason no longer applies: delegation resume{option}.")


def _tls_error(error: BaseException) -> ssl.SSLError | None:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _object(response: httpx.Response) -> Mapping[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _skew(response: httpx.Response, now: datetime) -> timedelta | None:
    """Return how far this machine's clock is from the server's, None if that is no cause."""
    try:
        there = parsedate_to_datetime(response.headers.get("Date", ""))
    except ValueError:
        return None
    skew = abs(now - there.replace(tzinfo=there.tzinfo or UTC))
    return skew if skew > _SKEW else None


def _subject(cert: Path | None) -> str:
    if cert is None:
        return "the certificate"
    try:
        from cryptography import x509  # noqa: PLC0415

        return x509.load_pem_x509_certificate(Path(cert).read_bytes()).subject.rfc4514_string()
    except (ModuleNotFoundError, OSError, ValueError):
        return "the certificate"
