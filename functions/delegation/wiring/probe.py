"""One request through the front end with mutual TLS, as a caller sends it: from the handshake to the API's function."""

import contextlib
import http.client
import json
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from delegation.environment import EnvironmentSettings
from delegation.wiring.clients import QUICK, aws

HEALTH: Final = "/v1/health"
_TIMEOUT_SECONDS: Final = 10.0
_HTTPS: Final = 443
_KEPT_SECONDS: Final = 3_600.0
"""How long a working certificate is kept before it is read again."""
_MOST_BYTES: Final = 65_536


class ProbeSettings(EnvironmentSettings):
    """`url` is the API's base; `address` the host to connect to if its name has no record where the probe runs."""

    url: str = Field(alias="DELEGATION_PROBE_URL", pattern=r"^https://[^/]+")
    address: str | None = Field(None, alias="DELEGATION_PROBE_ADDRESS", min_length=1)
    secret_arn: str = Field(alias="DELEGATION_PROBE_SECRET_ARN", min_length=1)


class ProbeSecret(BaseModel):
    """In PEM: the probe's client certificate with its key, and the front end's authority if it is not public."""

    model_config = ConfigDict(extra="ignore")

    certificate: str = Field(min_length=1)
    key: SecretStr
    authority: str | None = None

    def context(self) -> ssl.SSLContext:
        """Return the TLS settings. Raises ssl.SSLError for an invalid certificate or another's key."""
        context = ssl.create_default_context(cadata=self.authority)
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
            certificate.write_text(self.certificate, encoding="ascii")
            key.touch(mode=0o600)
            key.write_text(self.key.get_secret_value(), encoding="ascii")
            context.load_cert_chain(certificate, key)
        return context


@dataclass(frozen=True, slots=True)
class Probed:
    """How long a probe took in seconds, and what was wrong; None if the service is up."""

    seconds: float
    problem: str | None = None


class ProbeUnusable(Exception):
    """The probe's own certificate cannot be read or used; the text states why, without the secret."""


@dataclass
class FrontProbe:
    """Probes with the certificate that `certificate` returns; a working one is kept for an hour."""

    settings: ProbeSettings
    certificate: Callable[[], ssl.SSLContext]
    now: Callable[[], float] = time.monotonic
    _context: ssl.SSLContext | None = field(default=None, repr=False)
    _read_at: float = 0.0

    def perform(self) -> Probed:
        began = self.now()
        try:
            if self._context is None or began - self._read_at >= _KEPT_SECONDS:
                self._context, self._read_at = self.certificate(), began
            problem = self._ask(self._context)
        except ProbeUnusable as error:
            problem = str(error)
        if problem is not None:
            self._context = None  # the certificate may have been replaced
        return Probed(self.now() - began, problem)

    def _ask(self, context: ssl.SSLContext) -> str | None:
        base = urlsplit(self.settings.url)
        host, port = base.hostname or "", base.port or _HTTPS
        try:
            with contextlib.ExitStack() as opened:
                plain = opened.enter_context(
                    socket.create_connection((self.settings.address or host, port), timeout=_TIMEOUT_SECONDS)
                )
                secure = opened.enter_context(context.wrap_socket(plain, server_hostname=host))
                connection = http.client.HTTPConnection(base.netloc)
                connection.sock = secure
                connection.request("GET", base.path.rstrip("/") + HEALTH, headers={"Accept": "application/json"})
                answer = connection.getresponse()
                return _wrong_in(answer.status, answer.read(_MOST_BYTES))
        except ssl.SSLCertVerificationError as error:
            return f"the certificate of {host} is refused: {error.verify_message}"
        except ssl.SSLError as error:
            return f"the TLS handshake with {host} failed: {error.reason}"
        except (OSError, http.client.HTTPException) as error:
            return f"{self.settings.address or host}:{port} cannot be reached: {type(error).__name__}"


def _wrong_in(status: int, body: bytes) -> str | None:
    if status != http.client.OK:
        return f"GET {HEALTH} returned {status}"
    try:
        health: Any = json.loads(body)
    except ValueError:
        return f"GET {HEALTH} returned 200 without JSON"
    if not isinstance(health, Mapping) or health.get("status") != "up":
        return f"GET {HEALTH} returned 200, but the service's status is not `up`"
    return None


def front_probe() -> FrontProbe:
    """Return the probe of this process. Raises ValidationError."""
    settings = ProbeSettings.read()
    secrets = aws("secretsmanager", QUICK)

    def certificate() -> ssl.SSLContext:
        try:
            text = secrets.get_secret_value(SecretId=settings.secret_arn)["SecretString"]
            return ProbeSecret.model_validate_json(text).context()
        except (BotoCoreError, ClientError, KeyError) as error:
            raise ProbeUnusable(f"the probe's secret cannot be read: {type(error).__name__}") from error
        except (ValidationError, ssl.SSLError, UnicodeEncodeError):
            # Not chained: the cause quotes the secret.
            raise ProbeUnusable(
                "the probe's secret must be JSON with `certificate` and `key`, a certificate and its key in PEM"
            ) from None

    return FrontProbe(settings, certificate)
