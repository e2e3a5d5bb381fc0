"""The three files of the rule send the same requests to the gateway, each evaluated by its own grammar.

That real programs agree is checked by test_proxies.py (`make gateway-rule`).
"""

import re
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from botocore.session import Session
from botocore.validate import ParamValidator

from infra.rule.conditions import LISTENER_RULES, RoutedRequest, leads_to_gateway, listener_rules
from tests.infra.rule.samples import SAMPLES, RuleSample

RULES = listener_rules()
NGINX = LISTENER_RULES.with_name("nginx.conf").read_text(encoding="utf-8")
ENVOY = yaml.safe_load(LISTENER_RULES.with_name("envoy.yaml").read_text(encoding="utf-8"))


def by_alb(sample: RuleSample) -> bool:
    return leads_to_gateway(RoutedRequest(sample.method, sample.target, sample.headers), RULES)


def by_nginx(sample: RuleSample) -> bool:
    """Evaluate the blocks `map`: the key is the text with variables, a value the first expression that matches."""
    headers = {f"http_{name.lower().replace('-', '_')}": value.strip(" ") for name, value in sample.headers}
    values = {"request_method": sample.method, "request_uri": sample.target, **headers}

    def text(source: str) -> str:
        return re.sub(r"\$(\w+)", lambda found: values.get(found[1], ""), source)

    for source, name, block in re.findall(r'^map "([^"]+)" \$(\w+) \{(.*?)^\}', NGINX, re.MULTILINE | re.DOTALL):
        lines = re.findall(r'^ +(default|"[^"]+") (\w+);$', block, re.MULTILINE)
        default = next(value for pattern, value in lines if pattern == "default")
        given = text(source)
        matching = [value for pattern, value in lines if pattern != "default" and nginx_like(given, pattern.strip('"'))]
        values[name] = matching[0] if matching else default
    return values["catalog"] == "gateway"


def nginx_like(given: str, pattern: str) -> bool:
    return bool(re.search(pattern[1:], given)) if pattern.startswith("~") else given == pattern


def envoy_routes() -> list[dict[str, Any]]:
    manager = ENVOY["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    routes: list[dict[str, Any]] = manager["route_config"]["virtual_hosts"][0]["routes"]
    return routes


def envoy_text_matches(matcher: dict[str, Any], text: str | None) -> bool:
    if text is None:
        return False
    if matcher.get("present_match"):
        return True
    match matcher["string_match"]:
        case {"exact": str(exact), "ignore_case": True}:
            return exact.lower() == text.lower()
        case {"exact": str(exact)}:
            return exact == text
        case {"safe_regex": {"regex": str(regex)}}:
            return bool(re.fullmatch(regex, text))
        case other:
            raise AssertionError(other)


def by_envoy(sample: RuleSample) -> bool:
    """Evaluate the routes in order: the first whose path, headers and query parameters all match is taken."""
    url = urllib.parse.urlsplit(sample.target)
    headers = {":method": sample.method, **{name.lower(): value for name, value in sample.headers}}
    query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
    for route in envoy_routes():
        match = route["match"]
        regex = match.get("safe_regex", {}).get("regex", ".*")
        if (
            url.path.startswith(match.get("prefix", ""))
            and match.get("path", url.path) == url.path
            and re.fullmatch(regex, url.path)
            and all(envoy_text_matches(each, headers.get(each["name"])) for each in match.get("headers", ()))
            and all(envoy_text_matches(each, query.get(each["name"])) for each in match.get("query_parameters", ()))
        ):
            return bool(route["route"]["cluster"] == "gateway")
    raise AssertionError("no route")


@pytest.mark.parametrize("evaluate", [by_alb, by_nginx, by_envoy])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_only_the_requests_of_the_rule_lead_to_the_gateway(evaluate: Callable[[RuleSample], bool], sample: RuleSample):
    assert evaluate(sample) is sample.leads_to_gateway(evaluate.__name__.removeprefix("by_"))


def values_of(condition: dict[str, Any]) -> list[str]:
    config = next(value for name, value in condition.items() if name.endswith("Config"))
    return [value if isinstance(value, str) else value["Value"] for value in config["Values"]]


def test_the_listener_rules_keep_the_load_balancer_s_limits():
    # Application Load Balancers, "Condition types for listener rules": 3 values a condition, 5 values and 5 wildcards
    # a rule, one condition on the method and one on the path, 128 characters a value.
    for rule in RULES:
        fields = [condition["Field"] for condition in rule["Conditions"]]
        values = [value for condition in rule["Conditions"] for value in values_of(condition)]
        assert max(len(values_of(condition)) for condition in rule["Conditions"]) <= 3
        assert len(values) <= 5
        assert sum(value.count("*") + value.count("?") for value in values) <= 5
        assert max(map(len, values)) <= 128
        assert all(fields.count(field) == 1 for field in ("http-request-method", "path-pattern"))


def test_the_listener_rules_are_what_the_api_takes():
    shape = Session().get_service_model("elbv2").operation_model("CreateRule").input_shape
    for rule in RULES:
        given = {"ListenerArn": "arn", "Actions": [{"Type": "forward", "TargetGroupArn": "arn"}], **rule}
        assert ParamValidator().validate(given, shape).generate_report() == ""


def test_another_kind_of_condition_is_not_ignored():
    rule = {"Conditions": [{"Field": "host-header", "HostHeaderConfig": {"Values": ["polaris.example.com"]}}]}
    with pytest.raises(ValueError, match="host-header"):
        leads_to_gateway(RoutedRequest("GET", "/"), [rule])
