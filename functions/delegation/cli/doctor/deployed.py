"""What a first deployment on AWS has to show, seen from outside with the operator's own AWS credentials."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from delegation.cli.doctor.aws import asked, aws_failure
from delegation.cli.doctor.checks import CheckResult, failed, not_checked, passed
from delegation.cli.doctor.gateway import DeployedGateway, StackResource
from polaris_common.errors import counted

RUNTIME: Final = "python3.13"
"""The runtime for which `python -m infra.package` builds; a test compares it with the templates'."""
LOG_GROUPS: Final = "/aws/vendedlogs/states/"
_WHOLE: Final = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE"})
_USABLE: Final = frozenset({"CREATED", "STARTING", "STARTED", "STOPPING", "STOPPED"})
"""EMR Serverless application states in which a job starts it (User Guide, "Application states")."""
_AGAIN: Final = "Deploy the stack again; `cdk diff` shows what differs."
_OPTIONAL: Final = {
    "Network": "there is none, as without a VPC",
    "Gateway": "there is none, as without delegation:gateway",
}


@dataclass(frozen=True, slots=True)
class DeployedCheck:
    """Checks the stacks of a stage; `client` returns a boto3 client of a service."""

    stage: str
    client: Callable[[str], Any]

    def findings(self) -> Iterator[CheckResult]:
        """Yield a finding for each part that AWS shows from outside."""
        found: dict[str, tuple[StackResource, ...]] = {}
        for part in ("Data", "Service", *_OPTIONAL):
            name = f"PolarisDelegation-{self.stage}-{part}"
            try:
                yield self._stack(name)
                found[part] = self._resources(name)
            except (BotoCoreError, ClientError) as error:
                if part in _OPTIONAL and _is_absent(error):
                    yield not_checked(f"stack {name}", _OPTIONAL[part])
                    continue
                yield _of_stack(name, error)
                if part not in _OPTIONAL:
                    return
        yield from self._parts([one for resources in found.values() for one in resources])
        if "Gateway" in found:
            yield from DeployedGateway(self.client).findings(found["Gateway"], found["Data"])

    def _parts(self, found: list[StackResource]) -> Iterator[CheckResult]:
        checks: tuple[tuple[str, str, Callable[[str], CheckResult]], ...] = (
            ("function", "AWS::Lambda::Function", self._function),
            ("queue's mapping", "AWS::Lambda::EventSourceMapping", self._mapping),
            ("schedule", "AWS::Events::Rule", self._rule),
            ("state machine", "AWS::StepFunctions::StateMachine", self._machine),
            ("EMR application", "AWS::EMRServerless::Application", self._application),
            ("load balancer's targets", "AWS::ElasticLoadBalancingV2::TargetGroup", self._targets),
            ("alarms' topic", "AWS::SNS::Topic", self._topic),
        )
        for name, kind, check in checks:
            ids = [one.physical_id for one in found if one.kind == kind]
            if not ids:
                yield not_checked(name, "the stacks have none")
            for one in ids:
                yield asked(name, one, check)
        yield asked("alarms", f"polaris-delegation-{self.stage}-", self._alarms)

    def _stack(self, name: str) -> CheckResult:
        [stack] = self.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
        status = stack["StackStatus"]
        if status not in _WHOLE:
            return failed(f"stack {name}", f"it is {status}", "Look at the stack's events, then deploy it again.")
        return passed(f"stack {name}", f"it is {status}, with {counted(len(stack.get('Outputs', ())), 'output')}")

    def _resources(self, name: str) -> tuple[StackResource, ...]:
        pages = self.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=name)
        return tuple(
            StackResource(each["ResourceType"], each["LogicalResourceId"], each.get("PhysicalResourceId", ""))
            for page in pages
            for each in page["StackResourceSummaries"]
        )

    def _function(self, name: str) -> CheckResult:
        found = self.client("lambda").get_function_configuration(FunctionName=name)
        state, update = found.get("State"), found.get("LastUpdateStatus")
        if not found["Handler"].startswith("delegation."):
            return not_checked("function", f"{name} is the CDK's own")
        if found.get("Runtime") != RUNTIME:
            text = f"{name} has {found.get('Runtime')}, and the package is for {RUNTIME}"
            return failed("function", text, "Deploy with the package of this release (`python -m infra.package`).")
        if state not in {"Active", "Inactive"} or update not in {"Successful", None}:
            reason = found.get("StateReason") or found.get("LastUpdateStatusReason") or "no reason given"
            return failed("function", f"{name} is {state}, its last update {update}: {reason}", _AGAIN)
        return passed("function", f"{name} is {state} on {RUNTIME}, {'/'.join(found.get('Architectures', ()))}")

    def _mapping(self, name: str) -> CheckResult:
        found = self.client("lambda").get_event_source_mapping(UUID=name)
        text = f"{found['EventSourceArn'].rpartition(':')[2]} is {found['State']}"
        if found["State"] != "Enabled":
            return failed("queue's mapping", text, f"aws lambda update-event-source-mapping --uuid {name} --enabled")
        return passed("queue's mapping", text)

    def _rule(self, name: str) -> CheckResult:
        rule = name.rpartition("|")[2]
        found = self.client("events").describe_rule(Name=rule)
        text = f"{rule} is {found['State']}, {found.get('ScheduleExpression', 'by pattern')}"
        if found["State"] != "ENABLED":
            return failed("schedule", text, f"aws events enable-rule --name {rule}; without it nothing is swept.")
        return passed("schedule", text)

    def _machine(self, arn: str) -> CheckResult:
        name = "state machine"
        found = self.client("stepfunctions").describe_state_machine(stateMachineArn=arn)
        logging = found.get("loggingConfiguration", {})
        groups = [each["cloudWatchLogsLogGroup"]["logGroupArn"] for each in logging.get("destinations", ())]
        named = [group.partition(":log-group:")[2].removesuffix(":*") for group in groups]
        if found["status"] != "ACTIVE" or logging.get("level", "OFF") == "OFF":
            return failed(name, f"it is {found['status']}, logs: {logging.get('level', 'OFF')}", _AGAIN)
        if not named or not named[0].startswith(LOG_GROUPS):
            fix = "Deploy again: a group elsewhere makes the account's resource policy of logs grow with each stack."
            return failed(name, f"it logs to {named or 'nothing'}, not below {LOG_GROUPS}", fix)
        logs = self.client("logs").describe_log_groups(logGroupNamePrefix=named[0])["logGroups"]
        if not any(group.get("storedBytes", 0) for group in logs):
            return not_checked(name, f"it is ACTIVE; {named[0]} has no bytes yet: purge a table, then ask again")
        return passed(name, f"it is ACTIVE and logs to {named[0]}")

    def _application(self, identifier: str) -> CheckResult:
        name = "EMR application"
        emr = self.client("emr-serverless")
        found = emr.get_application(applicationId=identifier)["application"]
        if found["state"] not in _USABLE:
            text = f"{identifier} is {found['state']}: {found.get('stateDetails', 'no reason given')}"
            return failed(name, text, _AGAIN)
        runs = emr.list_job_runs(applicationId=identifier, states=["SUCCESS"], maxResults=1)["jobRuns"]
        if not runs:
            text = f"{identifier} is {found['state']}, {found['releaseLabel']}, and no job has succeeded yet"
            return not_checked(name, f"{text}: dry-run a purge with the property engine = spark")
        return passed(name, f"{identifier} is {found['state']}, {found['releaseLabel']}; a job has succeeded")

    def _targets(self, arn: str) -> CheckResult:
        found = self.client("elbv2").describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        states = sorted({each["TargetHealth"]["State"] for each in found})
        if states != ["healthy"]:
            fix = "Check the security groups of load balancer and endpoint, and the API's domain as host."
            return failed("load balancer's targets", f"they are {', '.join(states) or 'none'}", fix)
        return passed("load balancer's targets", f"{len(found)} are healthy")

    def _topic(self, arn: str) -> CheckResult:
        found = self.client("sns").list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
        confirmed = [each for each in found if each["SubscriptionArn"].startswith("arn:")]
        if not confirmed:
            fix = f"aws sns subscribe --topic-arn {arn} --protocol email --notification-endpoint ADDRESS; confirm it."
            return failed("alarms' topic", "nobody is subscribed, so no alarm reaches anyone", fix)
        return passed("alarms' topic", f"confirmed: {counted(len(confirmed), 'subscription')}")

    def _alarms(self, prefix: str) -> CheckResult:
        found: list[dict[str, Any]] = []
        for page in self.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=prefix):
            found += page["MetricAlarms"]
        silent = [each["AlarmName"] for each in found if not (each["ActionsEnabled"] and each["AlarmActions"])]
        if not found:
            return failed("alarms", f"there are none named {prefix}*", _AGAIN)
        if silent:
            fix = f"aws cloudwatch enable-alarm-actions --alarm-names {' '.join(silent)}, or deploy again."
            return failed("alarms", f"{', '.join(silent)} notify nobody", fix)
        on = [each["AlarmName"] for each in found if each["StateValue"] == "ALARM"]
        if on:
            return failed("alarms", f"{', '.join(on)} {'is' if len(on) == 1 else 'are'} on", "See the runbook.")
        return passed("alarms", f"{len(found)} have actions, and none is on")


def _is_absent(error: Exception) -> bool:
    """Whether CloudFormation knows no such stack: it answers ValidationError (API Reference, DescribeStacks)."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"] == "ValidationError"


def _of_stack(name: str, error: Exception) -> CheckResult:
    if _is_absent(error):
        fix = "Deploy it, or name the stage with --stage; AWS_REGION must be the deployment's."
        return failed(f"stack {name}", "it does not exist", fix)
    return aws_failure(f"stack {name}", name, error)
