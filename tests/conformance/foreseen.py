"""Which refusals and server errors a caller must expect although its request fits the document; no I/O."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

INTERNAL = "INTERNAL_ERROR"
EXECUTE = "/v1/tasks/execute/synchronous"
LONGEST_WAIT_SECONDS = 29.0
"""API Gateway's integration timeout (Amazon API Gateway developer guide, "Quotas")."""
_INDEX = re.compile(r"\[\d+\]|\[\"|\.")


def described_codes(text: str) -> frozenset[str]:
    """Return the codes of functions/delegation/edge/codes.json."""
    return frozenset(code for chapter in json.loads(text).values() for code in chapter)


def server_error(status: int, code: str | None, codes: frozenset[str]) -> bool:
    """Return whether a 5xx is one that the catalogue of codes describes, and no fault of the service."""
    return 502 <= status <= 504 and code in codes and code != INTERNAL


def refusal(path: str, status: int, answer: Mapping[str, Any]) -> str | None:
    """Return why a request that fits our document is refused nevertheless, None if nothing foresees it."""
    message = str(answer.get("message", ""))
    if status == 400 and message.startswith("query page_token: "):
        return "a page token is opaque: only the service makes one"
    if status == 400 and path == EXECUTE and message.startswith("operation_parameters.properties.dry-run: "):
        return "a dry run is refused where 200 means that the files are deleted"
    if status == 400 and "is not an option of this operation" in message:
        return "the schema of the options is one for all operations"
    if status == 400 and message.startswith("operation_parameters: must have the table's identity alone"):
        return "the schema has the forms of all operations: only a purge takes a LoadTableResult"
    if status == 400 and message.startswith("operation_parameters.properties.plan: must be absent when dry-run"):
        return "the query asks for a dry run, and the body names the plan of another one"
    return None


def slow(path: str, seconds: float) -> str | None:
    """Return why an answer came later than other operations may take, None if nothing foresees it.

    The synchronous call waits for the outcome of its task, whatever it is, until API Gateway's time is about to end.
    """
    if path == EXECUTE and seconds <= LONGEST_WAIT_SECONDS:
        return "the synchronous call waits for its task until its budget ends"
    return None


def limit(status: int, answer: Mapping[str, Any], violations: Iterable[Iterable[str | int]]) -> str | None:
    """Return why a request that fits the appendix is refused, if the refusal names a member beyond a listed limit.

    `violations` are the places at which the body does not fit our document.
    """
    if status != 400:
        return None
    named = str(answer.get("message", "")).partition(": ")[0]
    for place in violations:
        if _steps(named, place):
            return "beyond a limit of docs/extensions.md; the answer names the member"
    return None


def _steps(named: str, place: Iterable[str | int]) -> bool:
    """Return whether an answer's path such as `a.b[0]` is at `place` or within it."""
    text = ""
    for step in place:
        text += f"[{step}]" if isinstance(step, int) else (f".{step}" if text else step)
    if not text:
        return not _INDEX.search(named)  # an unknown member of the body itself
    return named == text or (named.startswith(text) and bool(_INDEX.match(named[len(text) :])))
