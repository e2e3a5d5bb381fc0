"""Which catalogs exist and which of them keep keys: requests for no known catalog make no record."""

import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from delegation.gateway.answers import error_answer, json_answer
from delegation.gateway.errors import CatalogOutcomeUnknown
from delegation.gateway.forwarding import Forwarder, without
from delegation.gateway.messages import CatalogAnswer, CatalogRequest
from delegation.gateway.routing import KEY_HEADER, Target
from delegation.identifiers import encoded_query

_MOST: Final = 1_000
_OF_THE_REQUEST: Final = ("content-type", "content-encoding", "accept-encoding", "if-none-match", KEY_HEADER)


class KnownCatalogs:
    """Asks `GET /v1/config` for a catalog, as the caller, and remembers those that exist for `seconds`."""

    def __init__(
        self, forwarder: Forwarder, *, seconds: float = 300.0, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._forwarder = forwarder
        self._seconds = seconds
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[str, str], tuple[float, bool]] = OrderedDict()

    def refusal(self, request: CatalogRequest, target: Target, realm: str | None) -> CatalogAnswer | None:
        """Return the answer of `GET /v1/config` if it does not know the request's catalog, else None. A server without
        prefixes has one catalog. Raises CatalogOutcomeUnknown if the catalog could not be asked: an earlier call may
        have had an effect."""
        if not target.prefix:
            return None
        known, now = (realm or "", target.prefix), self._monotonic()
        if known in self._known and self._known[known][0] > now:
            return None
        answer = self._configuration(request, target.catalog)
        if answer.status in {400, 404}:
            return answer
        if answer.status == 200 and _has_prefix(answer, target.catalog):
            self._known[known] = (now + self._seconds, _keeps_keys(answer))
            while len(self._known) > _MOST:
                self._known.popitem(last=False)
            return None
        if answer.status == 200:
            message = f"the catalog's configuration has another prefix than {target.catalog}; nothing was done"
            return error_answer(404, "NotFoundException", message)
        if answer.status in {401, 403, 419}:
            return None  # the catalog refuses the request itself
        raise CatalogOutcomeUnknown(
            f"{answer.status} was answered when the configuration of the catalog was read, and nothing more was done; "
            "repeat the request"
        )

    def keeps_keys(self, target: Target, realm: str | None) -> bool:
        """Return whether the last configuration read states how long the catalog itself remembers keys."""
        return self._known.get((realm or "", target.prefix), (0.0, False))[1]

    def _configuration(self, request: CatalogRequest, catalog: str) -> CatalogAnswer:
        headers = (*without(request.headers, *_OF_THE_REQUEST), ("Accept-Encoding", "identity"))
        query = encoded_query([("warehouse", catalog)])
        return self._forwarder.forward(CatalogRequest("GET", "v1/config", query, headers))


def _has_prefix(answer: CatalogAnswer, catalog: str) -> bool:
    """Whether a configuration leads to the catalog: it names its prefix, or none."""
    overrides = (answer.document or {}).get("overrides")
    return isinstance(overrides, dict) and overrides.get("prefix", catalog) == catalog


def _keeps_keys(answer: CatalogAnswer) -> bool:
    """Whether a configuration that was read has Iceberg's `idempotency-key-lifetime`."""
    return isinstance((answer.document or {}).get(LIFETIME), str)


SUPPORTED: Final = "idempotency-key-supported"
LIFETIME: Final = "idempotency-key-lifetime"


def readable(request: CatalogRequest) -> CatalogRequest:
    """Return the request so that its answer can be read: without compression, and whole whatever the client has."""
    headers = without(request.headers, "accept-encoding", "if-none-match", "if-modified-since", "range")
    return CatalogRequest(
        request.method, request.path, request.query, (*headers, ("Accept-Encoding", "identity")), request.body
    )


def advertised(answer: CatalogAnswer, lifetime: timedelta | None) -> CatalogAnswer:
    """Return the catalog's configuration with both forms of the key lifetime; without `lifetime` keys are not honored.
    The catalog's own settings stay, and so does an answer that is no CatalogConfig."""
    is_readable = answer.status == 200 and answer.header("Content-Encoding") in {None, "", "identity"}
    document = answer.document if is_readable else None
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
