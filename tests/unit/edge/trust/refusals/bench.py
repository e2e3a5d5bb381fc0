"""The front, the real authorizer and the real API in this process, and attempts to get past them over real sockets."""

import contextlib
import json
import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

from delegation.edge.errors import RevocationListUnavailable, Unauthorized
from delegation.edge.trust import settings as trust_settings
from delegation.edge.trust.authorizer import Authorizer, AuthorizerDecision
from delegation.edge.trust.revocation import Fetched
from delegation.handlers import authorizer as handler
from delegation.wiring import authorizer as wiring
from infra.local.front import https
from infra.local.front.apigateway import LocalApiGateway
from infra.local.front.https import Front, TlsFiles
from infra.local.lambdas.functions import Invocation
from tests.unit.edge.gateway import BASE, Context
from tests.unit.edge.requests import identity_only
from tests.unit.edge.trust.pki import ENDPOINT, TokenMaker, name_of, pem, public_pem, revocation_list, rsa_key

NOW: Final = datetime.now(UTC).replace(microsecond=0)
DAY: Final = timedelta(days=1)
CA, SECOND_CA = "CN=Private CA,O=Example", "CN=Second CA,O=Example"
SUBJECT, OPERATOR, OTHER = "CN=polaris,O=Example", "CN=operator,O=Example", "CN=other,O=Example"
SERIAL: Final = 0x0A1B2C
LISTS: Final = "s3://lists/ca.crl"
MAKER: Final = TokenMaker(
    rsa_key(), claims={**TokenMaker(None).claims, "iat": NOW.timestamp(), "exp": (NOW + timedelta(hours=1)).timestamp()}
)
SETTINGS: Final[Mapping[str, str]] = {
    "CLIENT_SUBJECT": SUBJECT,
    "CLIENT_ISSUER": CA,
    "OPERATOR_SUBJECTS": OPERATOR,
    "TOKEN_ISSUER": "https://issuer.test",
    "TOKEN_PUBLIC_KEY": public_pem(rsa_key()),
    "TOKEN_AUDIENCE": "delegation",
    "TOKEN_CLIENT_ID": "polaris",
}


@dataclass(frozen=True, slots=True)
class Issued:
    """How a client certificate differs from the pinned one; `issuer` None signs itself."""

    subject: str | x509.Name = SUBJECT
    issuer: str | None = CA
    serial: int = SERIAL
    begins: datetime = NOW - DAY
    ends: datetime = NOW + DAY
    usage: x509.ObjectIdentifier = Usage.CLIENT_AUTH
    is_authority: bool = False
    forged: bool = False
    short_key: bool = False
    signed_by_client: bool = False


class Pki:
    """Two trusted authorities, and client certificates as files with their key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in (CA, SECOND_CA, "client", "forger")}
        authorities = [
            self._signed(Issued(name, name, 1, is_authority=True), self.keys[name]) for name in (CA, SECOND_CA)
        ]
        self.trusted = folder / "trusted.pem"
        self.trusted.write_text("".join(map(pem, authorities)))
        self.server = self.file(Issued("CN=localhost,O=Example", usage=Usage.SERVER_AUTH))

    def certificate(self, wanted: Issued) -> x509.Certificate:
        return self._signed(wanted, self._key(wanted))

    def file(self, wanted: Issued) -> Path:
        """Write a certificate and its key; with `signed_by_client` also the client certificate that signed it."""
        key = self._key(wanted)
        chain = pem(self.certificate(Issued(OTHER))).encode() if wanted.signed_by_client else b""
        path = self.folder / "presented.pem"
        encoding = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        path = path.with_name("server.pem") if wanted.usage is Usage.SERVER_AUTH and not path.exists() else path
        path.write_bytes(key.private_bytes(*encoding) + pem(self._signed(wanted, key)).encode() + chain)
        return path

    def revocation_list(self, *revoked: int, ends: datetime = NOW + DAY, signer: str = CA) -> bytes:
        found = revocation_list(revoked, issuer=CA, this_update=NOW - DAY, next_update=ends, signer=self.keys[signer])
        return found.public_bytes(serialization.Encoding.DER)

    def _key(self, wanted: Issued) -> Any:
        return rsa.generate_private_key(65537, 1024) if wanted.short_key else self.keys["client"]

    def _signed(self, wanted: Issued, key: Any) -> x509.Certificate:
        issuer = OTHER if wanted.signed_by_client else wanted.issuer
        signer = key if issuer is None else self.keys[{OTHER: "client"}.get(issuer, issuer)]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name_of(wanted.subject))
            .issuer_name(name_of(issuer or wanted.subject))
            .serial_number(wanted.serial)
            .public_key(key.public_key())
            .not_valid_before(wanted.begins)
            .not_valid_after(wanted.ends)
            .add_extension(x509.BasicConstraints(ca=wanted.is_authority, path_length=None), critical=True)
        )
        if not wanted.is_authority:
            builder = builder.add_extension(x509.ExtendedKeyUsage([wanted.usage]), critical=False)
            names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self.keys["forger"] if wanted.forged else signer, hashes.SHA256())


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that differs from an admitted one; texts of `headers` are whole lines, `raw` replaces the request."""

    issued: Issued | None = field(default_factory=Issued)
    token: str | None = field(default_factory=MAKER.bearer)
    line: str = f"POST {BASE}/v1/tasks HTTP/1.1"
    headers: tuple[str, ...] = ()
    realm: Any = "POLARIS"
    body: bytes | None = None
    raw: bytes | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    lists: Callable[[Pki], bytes] | None = None
    private: bool = False
    endpoint: str = ENDPOINT
    tls: Callable[[ssl.SSLContext], object] | None = None
    plain: bytes | None = None

    def request(self) -> bytes:
        """Return the bytes of the request."""
        if self.raw is not None:
            return self.raw
        document = identity_only()
        document["common_payload"]["realm_identifier"] = self.realm
        body = json.dumps(document).encode() if self.body is None else self.body
        own = {line.partition(":")[0].lower() for line in self.headers}
        usual = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": len(body)}
        token = () if self.token is None else (f"Authorization: {self.token}",)
        lines = [f"{name}: {value}" for name, value in usual.items() if name.lower() not in own]
        return (
            "\r\n".join([self.line, *lines, *token, *self.headers, "Connection: close", "", ""]).encode("latin-1")
            + body
        )


class Handler:
    """A Lambda function in this process."""

    def __init__(self, handle: Callable[[dict[str, Any], Any], dict[str, Any]]) -> None:
        self.handle = handle
        self.events: list[dict[str, Any]] = []

    def invoke(self, payload: bytes) -> Invocation:
        event = json.loads(payload)
        self.events.append(event)
        try:
            return Invocation("r-1", json.dumps(self.handle(event, Context())).encode())
        except Exception as error:  # noqa: BLE001 - as the Lambda runtime answers any error of a handler
            return Invocation("r-1", json.dumps({"errorMessage": str(error)}).encode(), "Unhandled")


class NotedAuthorizer:
    """The real authorizer, whose reasons are noted in `reasons`."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self.reasons: list[str] = []

    def decide(self, event: Mapping[str, Any]) -> AuthorizerDecision:
        try:
            decided = self._authorizer.decide(event)
        except Unauthorized as refused:
            self.reasons.append(refused.reason)
            raise
        except Exception as failed:
            self.reasons.append(str(failed))
            raise
        if decided.refusal is not None:
            self.reasons.append(str(decided.refusal))
        return decided


@dataclass(frozen=True, slots=True)
class Outcome:
    """The first answer's status (None: no answer), why it was refused, and all that was received."""

    status: int | None
    why: str
    received: bytes = field(repr=False)


class RefusedHandshakes(logging.Handler):
    """Why the front ended handshakes, which it knows better than the client."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._reasons: SimpleQueue[str] = SimpleQueue()
        self._former = https.LOG.level
        https.LOG.addHandler(self)
        https.LOG.setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self._reasons.put(record.getMessage())

    def next(self) -> str:
        """Wait for the next reason; raises queue.Empty if the front refused no handshake."""
        return self._reasons.get(timeout=10)

    def close(self) -> None:
        https.LOG.removeHandler(self)
        https.LOG.setLevel(self._former)
        super().close()


class Bench:
    """Fronts of both profiles; the public API's and the private one's."""

    def __init__(self, folder: Path) -> None:
        self.handshakes = RefusedHandshakes()
        self.pki = Pki(folder)
        self.api = Handler(lambda _event, _context: {})
        tls = TlsFiles(self.pki.server, self.pki.server, self.pki.trusted)
        gateway = LocalApiGateway("localhost", BASE, "us-east-1", "123456789012")
        authorizer = Handler(handler.handler)
        self.fronts = [
            Front(api=self.api, authorizer=authorizer, tls=tls, gateway=one).start()  # type: ignore[arg-type]
            for one in (gateway, replace(gateway, vpc_endpoint=ENDPOINT))
        ]

    def stop(self) -> None:
        for front in self.fronts:
            front.stop()
        self.handshakes.close()

    def attempt(self, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Outcome:
        """Send a request on a new connection, and read until the front closes it."""
        noted = NotedAuthorizer(self._authorizer(attempt, monkeypatch))
        monkeypatch.setattr(handler, "authorizer", lambda: noted)
        self.api.events.clear()
        url = urlsplit(self.fronts[attempt.private].url)
        with socket.create_connection((str(url.hostname), int(url.port or 0)), timeout=10) as connection:
            if attempt.plain is not None:
                received = _exchange(connection, attempt.plain)
                return Outcome(None, self.handshakes.next(), received)
            try:
                with self._context(attempt).wrap_socket(connection, server_hostname="localhost") as secured:
                    received = _exchange(secured, attempt.request())
            except (ssl.SSLError, ConnectionError):
                return Outcome(None, self.handshakes.next(), b"")
        return _outcome(received, noted.reasons)

    def _context(self, attempt: Attempt) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.pki.trusted))
        if attempt.issued is not None:
            if attempt.issued.short_key:
                context.set_ciphers("DEFAULT:@SECLEVEL=0")
            context.load_cert_chain(self.pki.file(attempt.issued))
        if attempt.tls is not None:
            attempt.tls(context)
        return context

    def _authorizer(self, attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Authorizer:
        given = {**SETTINGS, **attempt.settings}
        if attempt.private:
            given |= {"CLIENT_CERTIFICATE_SOURCE": "alb", "CLIENT_VPC_ENDPOINTS": attempt.endpoint}
        if attempt.lists is not None:
            monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            given |= {"REVOCATION_LISTS": LISTS, "CLIENT_CA": self.pki.trusted.read_text()}
            stored = attempt.lists(self.pki)
            monkeypatch.setattr(wiring, "s3_fetch", lambda _s3: lambda _url, _version: _stored(stored))
        settings = {f"DELEGATION_{name}": value for name, value in given.items() if value}
        return wiring.authorizer(trust_settings.AuthorizerSettings.model_validate(settings))


def _stored(data: bytes) -> Fetched:
    if not data:
        raise RevocationListUnavailable("S3 is silent")
    return Fetched(data)


def _exchange(connection: socket.socket, sent: bytes) -> bytes:
    received = b""
    # The front may have answered and closed before everything was sent.
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(sent)
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
    return received


def _outcome(received: bytes, reasons: list[str]) -> Outcome:
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 "):
        return Outcome(None, "no answer", received)
    return Outcome(int(head[9:12]), reasons[0] if reasons else body.decode(), received)
