"""The fence of commits: the catalog as Spark sees it while it rewrites tables.

For each attempt, Iceberg in Spark knows one address on this machine, and no secret of the service's principal. There it
can load its table, with vended credentials, and commit replacements of files to its branch. The lease is checked before
each commit. After an answer that leaves a commit's outcome open the table is read: Iceberg deletes the files of a
refused commit, so it must never get a refusal of a commit that was applied.
"""

import json
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Final
from urllib.parse import unquote_plus

import httpx

from delegation.errors import RunStopped
from delegation.identifiers import TableIdentifier, encoded
from delegation.polaris.answers import PolarisError, PolarisUnavailable
from delegation.polaris.requests import CatalogRequests, error_in
from delegation.rewrites.commits import AdmittedCommit, CommitRules, OwnCommit, admitted, is_applied
from delegation.rewrites.errors import CommitRefused, RewriteError
from polaris_common.errors import DelegationError

LOOPBACK: Final = "127.0.0.1"
_VENDED: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}
_ALL: Final = {"snapshots": "all"}
_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
)
_CONFLICT: Final = 409
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Of a commit, which names one snapshot whatever the size of the table."""


class Sent(StrEnum):
    """The outcome of a commit."""

    APPLIED = "applied"
    CONFLICT = "conflict"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SentCommit:
    """A commit that Iceberg sent. `own` is None if the fence could not read it."""

    own: OwnCommit | None
    became: Sent


@dataclass(frozen=True, slots=True)
class FenceAnswer:
    """A status with a JSON document."""

    status: int
    body: bytes


def _refused(status: int, kind: str, message: str) -> FenceAnswer:
    """Return an error in the form of Iceberg's clients (Iceberg REST specification, ErrorModel)."""
    document = {"error": {"message": message, "type": kind, "code": status}}
    return FenceAnswer(status, json.dumps(document).encode())


def _forbidden(message: str) -> FenceAnswer:
    return _refused(403, "ForbiddenException", message)


def _unknown(message: str) -> FenceAnswer:
    """Return the answer that makes Iceberg keep the files of a commit."""
    return _refused(500, "CommitStateUnknownException", message)


@dataclass
class Gate:
    """What one attempt may do with its table. Thread-safe. `checkpoint` raises what ends the attempt. `stopped` is what
    ended it or what the catalog refused; no commit passes after it. `commits` are those that Iceberg sent, in the order
    of their answers."""

    identifier: TableIdentifier
    rules: CommitRules
    requests: CatalogRequests
    checkpoint: Callable[[], None]
    stopped: DelegationError | RunStopped | None = None
    commits: list[SentCommit] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._sending = 0
        self._is_closed = False

    def answer(self, method: str, path: str, body: bytes) -> FenceAnswer:
        """Answer a request to a path below the attempt's address."""
        path = path.partition("?")[0]
        if self._is_closed:
            return _forbidden("the attempt has ended")
        try:
            paths = self.requests.catalog(self.identifier.catalog)
            if (method, path) == ("GET", "v1/config"):
                return self._config(paths.prefix, paths.separator)
            table = paths.table_path(self.identifier)
            match method, _decoded(path):
                case "GET", decoded if decoded == _decoded(table):
                    return _passed(self.requests.send("GET", table, _ALL, _VENDED))
                case "GET", decoded if decoded == _decoded(f"{table}/credentials"):
                    return _passed(self.requests.send("GET", f"{table}/credentials", {}, _VENDED))
                case "POST", decoded if decoded == _decoded(table):
                    with self._sends():
                        return self._commit(table, body)
        except PolarisUnavailable as error:
            # Not 503: Iceberg would send a commit again.
            return _refused(500, "ServiceFailureException", str(error))
        except PolarisError as error:
            self._stop(error)
            return _forbidden(str(error))
        return _forbidden(f"a rewrite of {self.identifier} may only load the table and replace its files")

    def close(self) -> None:
        """Let no further commit pass. Returns when the commits in progress are answered."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._sending)

    @contextmanager
    def _sends(self) -> Iterator[None]:
        with self._changed:
            self._sending += 1
        try:
            yield
        finally:
            with self._changed:
                self._sending -= 1
                self._changed.notify_all()

    def _stop(self, error: DelegationError | RunStopped) -> None:
        with self._changed:
            self.stopped = self.stopped or error

    def _note(self, own: OwnCommit | None, became: Sent) -> None:
        with self._changed:
            self.commits.append(SentCommit(own, became))

    @staticmethod
    def _config(prefix: str, separator: str) -> FenceAnswer:
        overrides = {"prefix": prefix, "namespace-separator": encoded(separator)}
        return FenceAnswer(200, json.dumps({"defaults": {}, "overrides": overrides, "endpoints": _ENDPOINTS}).encode())

    def _commit(self, table: str, body: bytes) -> FenceAnswer:
        try:
            commit = admitted(body, self.rules)
        except RewriteError as error:
            self._note(None, Sent.REFUSED)
            self._stop(error)
            return _forbidden(str(error))
        try:
            if self._is_closed or self.stopped is not None:
                raise CommitRefused("the attempt has ended")
            self.checkpoint()
        except (DelegationError, RunStopped) as error:
            self._note(commit.own, Sent.REFUSED)
            self._stop(error)
            return _forbidden(f"the attempt may not commit: {error}")
        became, answer = self._send(table, commit)
        self._note(commit.own, became)
        return answer

    def _send(self, table: str, commit: AdmittedCommit) -> tuple[Sent, FenceAnswer]:
        try:
            response = self.requests.send("POST", table, {}, {}, commit.document)
            if response.is_success:
                return Sent.APPLIED, _passed(response)
            refusal, refused = error_in(response), _passed(response)
        except PolarisError as error:
            refusal, refused = error, _forbidden(str(error))
        # A server in between may have sent it twice, or answered itself, so the refusal may be of an applied commit.
        became, answer = self._outcome_in_table(table, commit, refusal, refused)
        is_final = refusal.status != _CONFLICT and not isinstance(refusal, PolarisUnavailable)
        if is_final and became is not Sent.APPLIED:
            self._stop(refusal)
        return became, answer

    def _outcome_in_table(
        self, table: str, commit: AdmittedCommit, why: PolarisError, refused: FenceAnswer
    ) -> tuple[Sent, FenceAnswer]:
        """Return the outcome by the table itself of a commit that was not answered with success; `refused` is the
        answer for one that the table does not have."""
        try:
            loaded = self.requests.send("GET", table, _ALL, {})
            document = json.loads(loaded.content) if loaded.is_success else {}
        except (PolarisError, ValueError):
            document = {}
        metadata = document.get("metadata") if isinstance(document, dict) else None
        if not isinstance(metadata, dict):
            return Sent.UNKNOWN, _unknown(f"{why}; afterwards, the table could not be read either")
        applied = is_applied(metadata, commit, self.rules.branch)
        if applied:
            result = {"metadata-location": document.get("metadata-location"), "metadata": metadata}
            return Sent.APPLIED, FenceAnswer(200, json.dumps(result).encode())
        if applied is False and not isinstance(why, PolarisUnavailable):
            if why.status == _CONFLICT:
                return Sent.CONFLICT, _refused(409, "CommitFailedException", str(why))
            return Sent.REFUSED, refused
        # It may be applied later, or an expiry may have removed its snapshot.
        return Sent.UNKNOWN, _unknown(str(why))


def _decoded(path: str) -> list[str]:
    """Return the segments of a path. Iceberg's client writes a blank as `+`."""
    return [unquote_plus(segment) for segment in path.split("/")]


def _passed(response: httpx.Response) -> FenceAnswer:
    return FenceAnswer(response.status_code, response.content)


class Fence(ThreadingHTTPServer):
    """Serves the gates of attempts, each at an address with its own secret, until it is shut down."""

    daemon_threads = True

    def __init__(self, host: str = LOOPBACK, port: int = 0) -> None:
        """`host` is where executors reach this process. Port 0 is any free port."""
        self._gates: dict[str, Gate] = {}
        self._lock = threading.Lock()
        super().__init__((host, port), FenceRequest)

    def __enter__(self) -> "Fence":
        threading.Thread(target=self.serve_forever, args=(0.05,), name="rewrites-fence", daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.shutdown()
        self.server_close()

    @contextmanager
    def opened(self, gate: Gate) -> Iterator[str]:
        """Give the address of a gate, as the `uri` of a catalog, until the end of the block."""
        secret = secrets.token_urlsafe(24)
        with self._lock:
            self._gates[secret] = gate
        try:
            yield f"http://{self.server_address[0]!s}:{self.server_port}/{secret}"
        finally:
            gate.close()
            with self._lock:
                del self._gates[secret]

    def answer(self, method: str, target: str, body: bytes) -> FenceAnswer:
        secret, _, path = target.removeprefix("/").partition("/")
        with self._lock:
            known = [gate for address, gate in self._gates.items() if compare_digest(address.encode(), secret.encode())]
        return known[0].answer(method, path, body) if known else _forbidden("no attempt has this address")


class FenceRequest(BaseHTTPRequestHandler):
    server: Fence
    protocol_version: ClassVar[str] = "HTTP/1.1"  # type: ignore[misc]
    server_version: ClassVar[str] = "delegation"  # type: ignore[misc]
    sys_version: ClassVar[str] = ""  # type: ignore[misc]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > _MOST_BYTES:
            self.close_connection = True
            self._send(_refused(413, "BadRequestException", "the size of the request is unknown or too large"))
            return
        self._answer(self.rfile.read(int(size)))

    def do_DELETE(self) -> None:
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self._send(self.server.answer(self.command, self.path, body))

    def _send(self, answer: FenceAnswer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, *_arguments: Any) -> None:
        """Log nothing, because the path contains a secret."""
