"""The stack of the gateway in front of the catalog, as AWS shows it from outside."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from delegation.cli.doctor.aws import asked
from delegation.cli.doctor.checks import CheckResult, failed, passed
from delegation.gateway.drop.dynamodb import CALLERS_INDEX, DUE_INDEX, NEWEST_INDEX

TABLE: Final = "gateway's tombstones"
API: Final = "gateway's API"
ENDPOINT: Final = "gateway's endpoint"
ALARMS: Final = "gateway's alarms"
TOMBSTONES: Final = "GatewayTombstones"
"""Beginning of the table's logical id in the stack *Data*; a test compares it with the template's."""
_ENDPOINT_ID: Final = re.compile(r"vpce-[0-9a-f]+")
_AGAIN: Final = "Deploy the stack Gateway again; `cdk diff` shows what differs."


class StackResource(NamedTuple):
    """A resource of a stack: its type, its name in the template, and AWS' own name for it."""

    kind: str
    logical_id: str
    physical_id: str


@dataclass(frozen=True, slots=True)
class DeployedGateway:
    """Checks what only the gateway has; `client` returns a boto3 client of a service.

    Its function and its target group are checked with those of the other stacks.
    """

    client: Callable[[str], Any]

    def findings(self, own: Sequence[StackResource], data: Sequence[StackResource]) -> Iterator[CheckResult]:
        """Yield a finding for the table in the stack *Data*, and for API, endpoint and alarms in the gateway's own."""
        tables = [one.physical_id for one in data if one.logical_id.startswith(TOMBSTONES)]
        if not tables:
            fix = "Deploy the stack Data with delegation:gateway = true, then Service, then Gateway."
            yield failed(TABLE, "the stack Data has no table for tombstones, so every drop fails", fix)
        for table in tables:
            yield asked(TABLE, table, self._table)
        for api in (one.physical_id for one in own if one.kind == "AWS::ApiGateway::RestApi"):
            yield asked(API, api, self._api)
            yield asked(ENDPOINT, api, self._endpoint)
        yield asked(ALARMS, "alarms", lambda _: self._alarms(own))

    def _table(self, name: str) -> CheckResult:
        found = self.client("dynamodb").describe_table(TableName=name)["Table"]
        if found["TableStatus"] not in {"ACTIVE", "UPDATING"}:
            return failed(TABLE, f"{name} is {found['TableStatus']}", "Wait until it is ACTIVE, then ask again.")
        indexes = {one["IndexName"] for one in found.get("GlobalSecondaryIndexes", ())}
        if missing := {CALLERS_INDEX, DUE_INDEX, NEWEST_INDEX} - indexes:
            fix = "Deploy the stack Data again; without it tombstones are not found when they are due, or not listed."
            return failed(TABLE, f"{name} lacks the index {', '.join(sorted(missing))}", fix)
        return passed(TABLE, f"{name} is {found['TableStatus']}, with both indexes")

    def _api(self, identifier: str) -> CheckResult:
        api = self.client("apigateway")
        types = api.get_rest_api(restApiId=identifier)["endpointConfiguration"]["types"]
        if types != ["PRIVATE"]:
            return failed(API, f"{identifier} is {', '.join(types)}, so not the load balancer alone calls it", _AGAIN)
        stages = [one["stageName"] for one in api.get_stages(restApiId=identifier)["item"] if one.get("deploymentId")]
        if not stages:
            return failed(API, f"{identifier} has no stage that is deployed, so it answers nothing", _AGAIN)
        return passed(API, f"{identifier} is PRIVATE, with the stage {', '.join(stages)}")

    def _endpoint(self, api: str) -> CheckResult:
        """Check the VPC endpoint that the policy of the API admits; it is not of the stack, and may be gone."""
        policy = self.client("apigateway").get_rest_api(restApiId=api).get("policy", "")
        named = sorted(set(_ENDPOINT_ID.findall(policy)))
        if not named:
            return failed(ENDPOINT, f"the policy of {api} admits no VPC endpoint", _AGAIN)
        return asked(ENDPOINT, ", ".join(named), lambda _: self._available(named))

    def _available(self, named: list[str]) -> CheckResult:
        fix = "Name an `execute-api` endpoint that is available in delegation:gateway-vpc-endpoint, and deploy again."
        for one in self.client("ec2").describe_vpc_endpoints(VpcEndpointIds=named)["VpcEndpoints"]:
            service, state = one["ServiceName"].rpartition(".")[2], one["State"].lower()
            if service != "execute-api" or state != "available":
                return failed(ENDPOINT, f"{one['VpcEndpointId']} is of {service}, and {state}", fix)
        return passed(ENDPOINT, f"{', '.join(named)} is available")

    def _alarms(self, own: Sequence[StackResource]) -> CheckResult:
        """Check that the alarms exist; whether they notify somebody and are on is checked with all others."""
        names = [one.physical_id for one in own if one.kind == "AWS::CloudWatch::Alarm"]
        found = self.client("cloudwatch").describe_alarms(AlarmNames=names)["MetricAlarms"] if names else []
        missing = set(names) - {one["AlarmName"] for one in found}
        if missing or not names:
            return failed(ALARMS, f"{', '.join(sorted(missing)) or 'none'} of the stack exist no more", _AGAIN)
        return passed(ALARMS, f"{', '.join(names)} exists")
