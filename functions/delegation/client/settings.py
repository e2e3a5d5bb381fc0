"""Settings of a client: addresses, the OAuth2 client, and certificates, read again when their files change."""

import contextlib
import json
import os
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx
from pydantic import Field, SecretStr, ValidationError

from delegation.client.errors import ClientMisconfigured
from delegation.configuration import DEFAULT_STACK, CallerSettings, FieldProblem, SettingsInvalid, problems_of
from delegation.environment import EnvironmentSettings

Seen = tuple[tuple[int, int, int] | None, ...]


class ClientTls:
    """A TLS context with a client certificate; thread-safe. After `refresh` the next handshake uses the files' new
    content; open connections stay. With a half-written file, or a certificate without its key, the former one stays in
    use until the next refresh."""

    def __init__(
        self,
        ca_cert: Path | None,
        client_cert: Path | None = None,
        client_key: Path | None = None,
        *,
        and_public: bool = False,
    ) -> None:
        """Read the files; trusts `ca_cert` (None: the public authorities) and, with `and_public`, also the public ones.
        Raises ClientMisconfigured if a file cannot be used."""
        self._ca_cert, self._client_cert, self._client_key = ca_cert, client_cert, client_key
        self._files = tuple(path for path in (ca_cert, client_cert, client_key) if path is not None)
        self._lock = threading.Lock()
        self._seen = self._state()
        with _readable(ca_cert=ca_cert):
            is_private = ca_cert is not None and not and_public
            self.context = ssl.create_default_context(cafile=str(ca_cert)) if is_private else httpx.create_ssl_context()
            if and_public and ca_cert is not None:
                self.context.load_verify_locations(ca_cert)
        with _readable(client_cert=client_cert, client_key=client_key):
            self._load_certificate(self.context)

    def refresh(self) -> None:
        """Load what changed since the last call, if it can be used."""
        with self._lock, contextlib.suppress(OSError):  # ssl.SSLError is one
            state = self._state()
            if state == self._seen:
                return
            # A trial first: a pair that does not match would leave the context with half of it.
            self._load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            if self._ca_cert is not None:
                self.context.load_verify_locations(self._ca_cert)
            self._load_certificate(self.context)
            self._seen = state

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        if self._client_cert is not None:
            context.load_cert_chain(self._client_cert, self._client_key)

    def _state(self) -> Seen:
        """Return what changes with each file: inode, time in nanoseconds, size; None for a missing one."""
        return tuple(_signature(path) for path in self._files)


def blocking_client(tls: ClientTls, timeout: httpx.Timeout) -> httpx.Client:
    """Return an HTTP client whose handshakes use the certificates as they are by then."""
    return httpx.Client(verify=tls.context, timeout=timeout, event_hooks={"request": [lambda _request: tls.refresh()]})


def asyncio_client(tls: ClientTls, timeout: httpx.Timeout) -> httpx.AsyncClient:
    async def refresh(_request: httpx.Request) -> None:
        tls.refresh()

    return httpx.AsyncClient(verify=tls.context, timeout=timeout, event_hooks={"request": [refresh]})


@contextlib.contextmanager
def _readable(**files: Path | None) -> Iterator[None]:
    """On a failure, name the files that cannot be read, or all of these if each can be."""
    try:
        yield
    except OSError as error:
        given = {name: path for name, path in files.items() if path is not None}
        unread = {name: path for name, path in given.items() if not os.access(path, os.R_OK)}
        named = " and ".join(f"{name} {path}" for name, path in (unread or given).items())
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise ClientMisconfigured(f"{named or 'the public CAs'} cannot be used: {reason}") from error


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


BASE_PATH = "/delegation-service/api"
_CORRECT = "Correct these settings in the environment or in a profile (page The `delegation` command, Settings)."


class ClientSettings(EnvironmentSettings):
    """Settings of a client; the fields are also those of a local stack's stack.json. `edge_url` ends with
    `/delegation-service/api`. Files are in PEM; `ca_cert` is the authority of the service's certificate, None for a
    public one."""

    edge_url: str = Field(alias="DELEGATION_EDGE_URL", pattern=r"^https?://[^/]+")
    ca_cert: Path | None = Field(None, alias="DELEGATION_CA_CERT")
    client_cert: Path | None = Field(None, alias="DELEGATION_CLIENT_CERT")
    client_key: Path | None = Field(None, alias="DELEGATION_CLIENT_KEY")
    token_url: str = Field(alias="DELEGATION_TOKEN_URL", pattern=r"^https?://[^/]+")
    client_id: str = Field(alias="DELEGATION_CLIENT_ID", min_length=1)
    client_secret: SecretStr = Field(alias="DELEGATION_CLIENT_SECRET")
    scope: str = Field("execute_tasks", alias="DELEGATION_SCOPE")
    realm: str = Field(alias="DELEGATION_REALM", min_length=1)

    @classmethod
    def read(cls) -> Self:
        """Read the settings like the command `delegation`: the environment over a profile. Without `edge_url` they come
        from the local stack whose stack.json DELEGATION_STACK or the profile names, else `.local/stack.json`.
        ClientMisconfigured names each missing or wrong one, and no value."""
        with _in_the_clients_words():
            settings = CallerSettings.load()
            if settings.get("edge_url") is not None:
                return cls._validated("the connection to the service", settings.variables(), _CORRECT)
            named = settings.get("stack")
            path = Path(named) if named else DEFAULT_STACK
            return cls._validated(str(path), _stack(path), "Start the stack again, or name another stack.json.")

    @classmethod
    def at(cls, edge_url: str) -> Self:
        """Read the other settings from the environment and the profile. Raises ClientMisconfigured."""
        with _in_the_clients_words():
            given = CallerSettings.load().variables()
            return cls._validated("the connection to the service", given | {"DELEGATION_EDGE_URL": edge_url}, _CORRECT)

    @classmethod
    def _validated(cls, where: str, given: Mapping[str, Any], next_step: str) -> Self:
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise SettingsInvalid(where, problems_of(error), next_step) from None

    def mutual_tls(self) -> ssl.SSLContext:
        """Return the context for the service, with the present certificates. Raises ClientMisconfigured."""
        return self.service_tls().context

    def token_tls(self) -> ssl.SSLContext:
        """Return the context for the token endpoint, which trusts public authorities and `ca_cert`. Raises the same."""
        return self.issuer_tls().context

    def service_tls(self) -> ClientTls:
        """Return TLS with the service, whose certificates can be read again. Raises ClientMisconfigured."""
        return ClientTls(self.ca_cert, self.client_cert, self.client_key)

    def issuer_tls(self) -> ClientTls:
        """Return the same for the token endpoint. Raises ClientMisconfigured."""
        return ClientTls(self.ca_cert, and_public=True)


@contextlib.contextmanager
def _in_the_clients_words() -> Iterator[None]:
    try:
        yield
    except SettingsInvalid as error:
        raise ClientMisconfigured(f"{error}\n{error.next_step}") from None


def _stack(path: Path) -> Mapping[str, Any]:
    """Return the fields of a stack.json. Raises SettingsInvalid if there is none, or no JSON object."""
    try:
        fields = json.loads(path.read_bytes())
    except OSError as error:
        raise SettingsInvalid(
            "the connection to the service",
            [FieldProblem("edge_url (DELEGATION_EDGE_URL)", "is not set"), FieldProblem(str(path), _reason(error))],
            "Set the connection in the environment or in a profile (page The `delegation` command, Settings), or "
            "start a local stack with `make up` in a checkout and name its stack.json in DELEGATION_STACK.",
        ) from None
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise SettingsInvalid(str(path), [FieldProblem(str(path), "is not a stack.json")], "Start the stack again.")
    return fields


def _reason(error: OSError) -> str:
    return "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
