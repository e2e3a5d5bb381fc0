"""Alarms on the front: the load balancer of the private profile, and the probe that goes through it."""

import json
import socket
import ssl
from typing import Any

import pytest

from infra.environment.functions import PROBE
from tests.infra.conftest import SynthesizedStack
from tests.infra.operations.watched import TemplateAlarm, WatchedTemplate
from tests.unit.handlers import test_probe_front as probing
from tests.unit.handlers.test_probe_front import DOWN, ProbedFront, probed

site = probing.site
KIND = "AWS::ElasticLoadBalancingV2::"
DOCUMENTED = {
    "UnHealthyHostCount": {"TargetGroup", "LoadBalancer"},
    "HTTPCode_ELB_5XX_Count": {"LoadBalancer"},
    "ClientTLSNegotiationErrorCount": {"LoadBalancer"},
}
"""Dimensions by metric: Elastic Load Balancing user guide, "CloudWatch metrics for your Application Load Balancer"."""
ATTRIBUTES = {"LoadBalancer": "LoadBalancerFullName", "TargetGroup": "TargetGroupFullName"}
"""The values of the dimensions, `app/NAME/ID` and `targetgroup/NAME/ID` (AWS Template Reference, return values)."""


def watches_the_front(alarm: TemplateAlarm) -> bool:
    """Whether AWS emits the alarm's metric under its dimensions, of this very load balancer and target group."""
    assert alarm.properties["Namespace"] == "AWS/ApplicationELB"
    assert alarm.dimensions.keys() == DOCUMENTED[alarm.properties["MetricName"]]
    for name, value in alarm.dimensions.items():
        assert alarm.resource(name)["Type"] == KIND + name
        assert value["Fn::GetAtt"][1] == ATTRIBUTES[name]
    return True


def is_healthy(group: dict[str, Any], status: int) -> bool:
    """Whether an answer passes the health check of a target group."""
    return str(status) in group["Properties"]["Matcher"]["HttpCode"].split(",")


@pytest.mark.parametrize(("statuses", "raised"), [((403, 403), False), ((403, 500), True), ((500, 404), True)])
def test_a_target_whose_answer_the_health_check_refuses_raises_its_alarm(
    watched: WatchedTemplate, statuses: tuple[int, ...], raised: bool
) -> None:
    """The endpoint answers 403 to a request without an API; AWS reports the number of unhealthy targets each minute."""
    alarm = watched["TargetsUnhealthy"]
    assert watches_the_front(alarm)
    unhealthy = float(sum(not is_healthy(alarm.resource("TargetGroup"), one) for one in statuses))
    assert not alarm.is_raised_by([unhealthy])
    assert alarm.is_raised_by([unhealthy] * 5, [unhealthy] * 5) is raised
    assert not alarm.is_raised_by([unhealthy], [])


def test_requests_that_no_target_takes_raise_the_alarm_of_the_front(watched: WatchedTemplate) -> None:
    """The API's own answers of 5XX are the target's; AWS counts them elsewhere, and ApiServerErrors watches those."""
    alarm = watched["FrontErrors"]
    assert watches_the_front(alarm)
    assert alarm.is_raised_by([1.0] * 5)
    assert not alarm.is_raised_by([1.0] * 4)
    assert watched["ApiServerErrors"].properties["MetricName"] != alarm.properties["MetricName"]


def test_clients_without_a_certificate_raise_the_alarm_of_handshakes(
    watched: WatchedTemplate, site: ProbedFront
) -> None:
    alarm = watched["TlsFailures"]
    assert watches_the_front(alarm)
    host, _, port = site.front.url.removeprefix("https://").partition("/")[0].partition(":")
    context = ssl.create_default_context(cafile=str(site.authority.files.cert))
    failed = 0.0
    for _ in range(10):
        with socket.create_connection((host, int(port))) as plain:
            try:
                context.wrap_socket(plain, server_hostname="localhost").close()
            except (ssl.SSLError, ConnectionResetError):
                failed += 1
        assert alarm.is_raised_by([1.0] * int(failed)) is (failed == 10)
    listener = next(
        body["Properties"] for body in watched.document["Resources"].values() if body["Type"] == KIND + "Listener"
    )
    assert listener["MutualAuthentication"]["Mode"] == "verify", "the load balancer refuses such a handshake too"


def test_a_front_that_does_not_answer_the_probe_raises_its_alarm(
    everything: dict[str, SynthesizedStack],
    site: ProbedFront,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    capsys: Any,
) -> None:
    optional = WatchedTemplate(everything["service"].document)
    optional.environ("probe_front", monkeypatch)
    alarm = optional["ProbeFailed"]
    site.answered = DOWN
    printed: list[str] = []
    for _ in range(5):
        probed(caplog, capsys, printed)
    assert alarm.values_in("\n".join(printed)) == [0.0] * 5
    assert alarm.is_raised_by(alarm.values_in("\n".join(printed)))
    site.answered = probing.UP
    probed(caplog, capsys, printed)
    assert not alarm.is_raised_by(alarm.values_in("\n".join(printed)))
    assert alarm.is_raised_by([]), "a probe that does not run is no sign of a service that is up"


def test_the_probe_runs_every_minute_and_only_with_a_secret(
    everything: dict[str, SynthesizedStack], service: SynthesizedStack
) -> None:
    stack, network = everything["service"], everything["network"]
    [(name, function)] = [
        (name, body)
        for name, body in stack.resources("AWS::Lambda::Function").items()
        if body["Properties"]["Handler"] == PROBE.handler
    ]
    rules = [
        body["Properties"]
        for body in stack.resources("AWS::Events::Rule").values()
        if json.dumps({"Fn::GetAtt": [name, "Arn"]}) in json.dumps(body)
    ]
    assert [(rule["ScheduleExpression"], rule["State"]) for rule in rules] == [("rate(1 minute)", "ENABLED")]
    assert PROBE.handler not in json.dumps(service.document)
    variables = function["Properties"]["Environment"]["Variables"]
    assert variables["DELEGATION_PROBE_ADDRESS"]["Fn::GetAtt"][1] == "DNSName"
    imported = [value["Fn::ImportValue"] for value in function["Properties"]["VpcConfig"]["SecurityGroupIds"]]
    exports = {one["Export"]["Name"]: one["Value"] for one in network.document["Outputs"].values() if "Export" in one}
    groups = {exports[one]["Fn::GetAtt"][0] for one in imported}
    admitted = {
        body["Properties"].get("SourceSecurityGroupId", {}).get("Fn::GetAtt", [""])[0]
        for body in network.resources("AWS::EC2::SecurityGroupIngress").values()
        if "LoadBalancer" in json.dumps(body["Properties"]["GroupId"])
    }
    assert groups & admitted, "the load balancer does not admit the probe"
