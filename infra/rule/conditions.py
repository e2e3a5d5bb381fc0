"""The rule's conditions as an Application Load Balancer evaluates them; the local stack routes with them.

Sources: Elastic Load Balancing, Application Load Balancers, "Condition types for listener rules"; API reference,
`RuleCondition`.
"""

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

LISTENER_RULES: Final = Path(__file__).with_name("alb.json")
"""The rules by priority, with the fields of the API's CreateRule."""
_BASE: Final = "/api/catalog"


class RoutedRequest(NamedTuple):
    """What a rule reads of a request; `target` is that of the request line."""

    method: str
    target: str
    headers: Iterable[tuple[str, str]] = ()


def listener_rules() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = json.loads(LISTENER_RULES.read_text(encoding="utf-8"))
    return rules


def with_base(base: str) -> list[dict[str, Any]]:
    """Return the rules for a catalog whose API is below `base` instead of /api/catalog."""
    rules: list[dict[str, Any]] = json.loads(json.dumps(listener_rules()).replace(f'"{_BASE}/', f'"{base}/'))
    return rules


def leads_to_gateway(request: RoutedRequest, rules: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether one of the rules has only conditions that hold."""
    return any(all(_holds(each, request) for each in rule["Conditions"]) for rule in rules)


def _holds(condition: Mapping[str, Any], request: RoutedRequest) -> bool:
    """Return whether one value of the condition matches; ValueError for a condition that is not evaluated here."""
    url = urlsplit(request.target)
    match condition["Field"]:
        case "http-request-method":
            return request.method in condition["HttpRequestMethodConfig"]["Values"]
        case "path-pattern":
            return any(_like(url.path, pattern) for pattern in condition["PathPatternConfig"]["Values"])
        case "query-string":
            pairs = [pair.partition("=")[::2] for pair in url.query.split("&")]
            wanted = condition["QueryStringConfig"]["Values"]
            return any(_pair_like(pair, each) for pair in pairs for each in wanted)
        case "http-header":
            name, patterns = (condition["HttpHeaderConfig"][field] for field in ("HttpHeaderName", "Values"))
            values = [value for known, value in request.headers if known.lower() == name.lower()]
            return any(_like(value.lower(), pattern.lower()) for value in values for pattern in patterns)
        case other:
            raise ValueError(f"a condition on {other} is not evaluated here")


def _pair_like(pair: tuple[str, ...], wanted: Mapping[str, str]) -> bool:
    """Compare a pair of the query as sent, without decoding it; case does not matter."""
    name, value = pair
    return _like(value.lower(), wanted["Value"].lower()) and _like(name.lower(), wanted.get("Key", "*").lower())


def _like(text: str, pattern: str) -> bool:
    """Match `*` (any characters, slashes too) and `?` (one character)."""
    return re.fullmatch(fnmatch.translate(pattern.replace("[", "[[]")), text) is not None
