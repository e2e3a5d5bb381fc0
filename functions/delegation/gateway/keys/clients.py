"""What clients conclude from the answer to a mutation whose outcome they do not know, and which answer that leaves.

One table, by client and status: Iceberg Java's ErrorHandlers.CommitErrorHandler and DefaultErrorHandler with the
interface CleanableFailure, pyiceberg's `_handle_non_200_response`; Trino commits with Iceberg Java's RESTSessionCatalog
(io.trino:trino-iceberg 483 has Iceberg 1.11.0), makes a failed query of each of its exceptions, and deletes nothing.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class CatalogClient(StrEnum):
    """A client, by the last release that behaves so."""

    ICEBERG_1_10 = "Iceberg Java up to 1.10"
    ICEBERG = "Iceberg Java from 1.11 on"
    PYICEBERG = "pyiceberg 0.12"
    TRINO = "Trino"


class Conclusion(StrEnum):
    APPLIED = "it was applied"
    NOT_APPLIED = "it was not applied: the client deletes the files of a commit, or commits them anew"
    UNKNOWN = "it may have been applied: the client deletes nothing"
    FAILED = "it failed: the client deletes nothing"


_CLEANED_UP: Final = frozenset({400, 401, 403, 404, 409})
_UNKNOWN: Final = frozenset({500, 502, 504})
_JAVA: Final = {
    **dict.fromkeys(_CLEANED_UP, Conclusion.NOT_APPLIED),
    **dict.fromkeys(_UNKNOWN | {503}, Conclusion.UNKNOWN),
}
_TABLE: Final[Mapping[CatalogClient, Mapping[int, Conclusion]]] = {
    # From 1.10.0 on only for the first commit of a created table (apache/iceberg issue 15050).
    CatalogClient.ICEBERG_1_10: {**_JAVA, 503: Conclusion.NOT_APPLIED},
    CatalogClient.ICEBERG: _JAVA,
    CatalogClient.PYICEBERG: {**dict.fromkeys(_UNKNOWN, Conclusion.UNKNOWN), 409: Conclusion.NOT_APPLIED},
    CatalogClient.TRINO: _JAVA,
}


def conclusion(client: CatalogClient, status: int) -> Conclusion:
    if 200 <= status < 300:
        return Conclusion.APPLIED
    return _TABLE[client].get(status, Conclusion.FAILED)


def denies(status: int) -> bool:
    """Whether some client takes an answer for "not applied"; then it may be given only if that is proved."""
    return any(conclusion(client, status) is Conclusion.NOT_APPLIED for client in CatalogClient)
