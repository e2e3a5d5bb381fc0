"""What is deployed on AWS, seen from outside with the operator's own AWS credentials."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)

from delegation.cli.doctor.checks import CheckResult, failed, not_checked, passed
from delegation.gateway.drop import store as tombstones
from delegation.tasks.stores.dynamodb_reads import DUE_INDEX
from polaris_common.errors import counted

_ABSENT: Final = frozenset(
    (
        *("ResourceNotFoundException", "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NoSuchBucket"),
        *("404", "NotFound", "NotFoundException", "InvalidVpcEndpointId.NotFound"),
    )
)
_DENIED: Final = frozenset({"AccessDeniedException", "AccessDenied", "403", "Forbidden", "UnauthorizedOperation"})
_TASK_KEY: Final = ["task_id", "version"]


@dataclass(frozen=True, slots=True)
class AwsCheck:
    """Checks the parts of a deployment by their settings; `client` returns a boto3 client of a service."""

    named: Mapping[str, str | None]
    client: Callable[[str], Any]

    def findings(self) -> Iterator[CheckResult]:
        checks: Mapping[str, Callable[[str, str], CheckResult]] = {
            "tasks_table": self._task_table,
            "idempotency_table": self._table,
            "references_table": self._table,
            "queue_url": self._queue,
            "plan_bucket": self._bucket,
        }
        for setting, check in checks.items():
            name, value = setting.removesuffix("_url").replace("_", " "), self.named.get(setting)
            if value is None:
                yield not_checked(name, f"{setting} (DELEGATION_{setting.upper()}) is not set")
            else:
                yield asked(name, value, partial(check, name))

    def _table(self, name: str, table: str) -> CheckResult:
        description = self.client("dynamodb").describe_table(TableName=table)["Table"]
        return self._state(name, table, description)

    def _task_table(self, name: str, table: str) -> CheckResult:
        description = self.client("dynamodb").describe_table(TableName=table)["Table"]
        keys = [key["AttributeName"] for key in description["KeySchema"]]
        if keys != _TASK_KEY:
            fix = "Name the task table in tasks_table (DELEGATION_TASKS_TABLE)."
            return failed(name, f"{table} has the key {', '.join(keys)}, so it is not the task table", fix)
        if not any(index["IndexName"] == DUE_INDEX for index in description.get("GlobalSecondaryIndexes", ())):
            fix = "Deploy the Data stack again, or make a table with `delegation tasks create-table`."
            return failed(name, f"{table} lacks the index {DUE_INDEX}, so due tasks are not found", fix)
        return self._state(name, table, description)

    def _state(self, name: str, table: str, description: Mapping[str, Any]) -> CheckResult:
        status = description["TableStatus"]
        if status not in {"ACTIVE", "UPDATING"}:
            return failed(name, f"{table} is {status}", "Wait until the table is ACTIVE. Check it in the AWS console.")
        return passed(name, f"{table} is {status}")

    def _queue(self, name: str, url: str) -> CheckResult:
        wanted = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "RedrivePolicy"]
        sqs = self.client("sqs")
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=wanted)["Attributes"]
        waiting, held = (int(attributes.get(each, 0)) for each in wanted[:2])
        text = f"{url.rsplit('/', 1)[-1]}: {counted(waiting, 'message')} waiting, {held} being dispatched"
        if "RedrivePolicy" not in attributes:
            return failed(name, f"{text}; it has no dead-letter queue", "Deploy the Service stack again.")
        return passed(name, text)

    def _bucket(self, name: str, bucket: str) -> CheckResult:
        self.client("s3").head_bucket(Bucket=bucket)
        return passed(name, f"{bucket} exists")


def asked(name: str, value: str, check: Callable[[str], CheckResult]) -> CheckResult:
    """Return the result of a part's check, or the meaning of AWS' error."""
    try:
        return check(value)
    except (BotoCoreError, ClientError) as error:
        return aws_failure(name, value, error)


def aws_failure(name: str, value: str, error: Exception) -> CheckResult:
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return failed(name, "there are no AWS credentials", "Sign in as for the AWS CLI, for example `aws sso login`.")
    if isinstance(error, NoRegionError):
        return failed(name, "no AWS region is set", "Set AWS_REGION to the deployment's region.")
    if isinstance(error, EndpointConnectionError):
        return failed(name, f"AWS cannot be reached: {error}", "Check the network, AWS_REGION and AWS_ENDPOINT_URL.")
    if not isinstance(error, ClientError):
        return failed(name, f"the call to AWS failed: {type(error).__name__}", "Try again in a moment.")
    code = str(error.response.get("Error", {}).get("Code", ""))
    if code in _ABSENT:
        fix = "Correct the name, the region or the account; the stacks' outputs show the names."
        return failed(name, f"{value} does not exist ({code})", fix)
    if code in _DENIED:
        return failed(name, f"you may not read {value} ({code})", "Use a role that may describe the deployment.")
    return failed(name, f"AWS refused to show {value} ({code})", "Renew your AWS credentials, then try again.")


TABLE: Final = "gateway's tombstones"
API: Final = "gateway's API"
ENDPOINT: Final = "gateway's endpoint"
ALARMS: Final = "gateway's alarms"
TOMBSTONES: Final = "GatewayTombstones"
"""Prefix of the table's logical id in the stack *Data*; a test compares it with the template's."""
_ENDPOINT_ID: Final = re.compile(r"vpce-[0-9a-f]+")
_GATEWAY_AGAIN: Final = "Deploy the Gateway stack again; `cdk diff` shows what differs."


class StackResource(NamedTuple):
    """A resource of a stack: its type, its name in the template, and AWS' own name for it."""

    kind: str
    logical_id: str
    physical_id: str


@dataclass(frozen=True, slots=True)
class DeployedGateway:
    """Checks what only the gateway has; its function and its target group are checked with the other stacks'."""

    client: Callable[[str], Any]

    def findings(self, own: Sequence[StackResource], data: Sequence[StackResource]) -> Iterator[CheckResult]:
        """Yield a finding for the table in the stack *Data*, and for API, endpoint and alarms in the gateway's own."""
        tables = [resource.physical_id for resource in data if resource.logical_id.startswith(TOMBSTONES)]
        if not tables:
            fix = "Deploy the Data stack with delegation:gateway = true, then the Service and Gateway stacks."
            yield failed(TABLE, "the Data stack has no tombstone table, so every drop fails", fix)
        for table in tables:
            yield asked(TABLE, table, self._table)
        for api in (resource.physical_id for resource in own if resource.kind == "AWS::ApiGateway::RestApi"):
            yield asked(API, api, self._api)
            yield asked(ENDPOINT, api, self._endpoint)
        yield asked(ALARMS, "alarms", lambda _: self._alarms(own))

    def _table(self, name: str) -> CheckResult:
        table = self.client("dynamodb").describe_table(TableName=name)["Table"]
        if table["TableStatus"] not in {"ACTIVE", "UPDATING"}:
            return failed(
                TABLE,
                f"{name} is {table['TableStatus']}",
                "Wait until the table is ACTIVE, then run the command again.",
            )
        indexes = {index["IndexName"] for index in table.get("GlobalSecondaryIndexes", ())}
        if missing := {tombstones.CALLERS_INDEX, tombstones.DUE_INDEX, tombstones.NEWEST_INDEX} - indexes:
            fix = (
                "Deploy the Data stack again. Without its indexes, tombstones cannot be listed, or are not purged when "
                "due."
            )
            return failed(TABLE, f"{name} lacks the index {', '.join(sorted(missing))}", fix)
        return passed(TABLE, f"{name} is {table['TableStatus']}, with all indexes")

    def _api(self, identifier: str) -> CheckResult:
        api = self.client("apigateway")
        types = api.get_rest_api(restApiId=identifier)["endpointConfiguration"]["types"]
        if types != ["PRIVATE"]:
            return failed(
                API,
                f"{identifier} is {', '.join(types)}, so callers other than the load balancer can reach it",
                _GATEWAY_AGAIN,
            )
        stages = [
            stage["stageName"] for stage in api.get_stages(restApiId=identifier)["item"] if stage.get("deploymentId")
        ]
        if not stages:
            return failed(API, f"{identifier} has no deployed stage, so it accepts no calls", _GATEWAY_AGAIN)
        return passed(API, f"{identifier} is PRIVATE, with the stage {', '.join(stages)}")

    def _endpoint(self, api: str) -> CheckResult:
        """Check the VPC endpoint that the API's policy admits; it is outside the stack, and may be gone."""
        policy = self.client("apigateway").get_rest_api(restApiId=api).get("policy", "")
        named = sorted(set(_ENDPOINT_ID.findall(policy)))
        if not named:
            return failed(ENDPOINT, f"the policy of {api} admits no VPC endpoint", _GATEWAY_AGAIN)
        return asked(ENDPOINT, ", ".join(named), lambda _: self._available(named))

    def _available(self, named: list[str]) -> CheckResult:
        fix = "Set delegation:gateway-vpc-endpoint to an available `execute-api` endpoint, and deploy again."
        for endpoint in self.client("ec2").describe_vpc_endpoints(VpcEndpointIds=named)["VpcEndpoints"]:
            service, state = endpoint["ServiceName"].rpartition(".")[2], endpoint["State"].lower()
            if service != "execute-api" or state != "available":
                return failed(ENDPOINT, f"{endpoint['VpcEndpointId']} is {state}, an endpoint of {service}", fix)
        return passed(ENDPOINT, f"{', '.join(named)} is available")

    def _alarms(self, own: Sequence[StackResource]) -> CheckResult:
        """Check that the alarms exist; whether they notify somebody and are on is checked with all others."""
        names = [resource.physical_id for resource in own if resource.kind == "AWS::CloudWatch::Alarm"]
        alarms = self.client("cloudwatch").describe_alarms(AlarmNames=names)["MetricAlarms"] if names else []
        missing = set(names) - {alarm["AlarmName"] for alarm in alarms}
        if not names:
            return failed(ALARMS, "the stack has no alarms", _GATEWAY_AGAIN)
        if missing:
            return failed(
                ALARMS, f"these alarms of the stack no longer exist: {', '.join(sorted(missing))}", _GATEWAY_AGAIN
            )
        return passed(ALARMS, f"all exist: {', '.join(names)}")


RUNTIME: Final = "python3.13"
"""The runtime for which `python -m infra.package` builds; a test compares it with the templates'."""
LOG_GROUPS: Final = "/aws/vendedlogs/states/"
_WHOLE: Final = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "IMPORT_COMPLETE"})
_USABLE: Final = frozenset({"CREATED", "STARTING", "STARTED", "STOPPING", "STOPPED"})
"""EMR Serverless application states in which a job starts it (User Guide, "Application states")."""
_AGAIN: Final = "Deploy the stack again; `cdk diff` shows what differs."
_OPTIONAL: Final = {
    "Network": "there is no such stack, because the deployment has no VPC",
    "Gateway": "there is no such stack, because delegation:gateway is off",
}


@dataclass(frozen=True, slots=True)
class DeployedCheck:
    """Checks the stacks of a stage; `client` returns a boto3 client of a service."""

    stage: str
    client: Callable[[str], Any]

    def findings(self) -> Iterator[CheckResult]:
        resources_of: dict[str, tuple[StackResource, ...]] = {}
        for part in ("Data", "Service", *_OPTIONAL):
            name = f"PolarisDelegation-{self.stage}-{part}"
            try:
                yield self._stack(name)
                resources_of[part] = self._resources(name)
            except (BotoCoreError, ClientError) as error:
                if part in _OPTIONAL and _is_absent(error):
                    yield not_checked(f"stack {name}", _OPTIONAL[part])
                    continue
                yield _of_stack(name, error)
                if part not in _OPTIONAL:
                    return
        yield from self._parts([resource for resources in resources_of.values() for resource in resources])
        if "Gateway" in resources_of:
            yield from DeployedGateway(self.client).findings(resources_of["Gateway"], resources_of["Data"])

    def _parts(self, resources: list[StackResource]) -> Iterator[CheckResult]:
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
            ids = [resource.physical_id for resource in resources if resource.kind == kind]
            if not ids:
                yield not_checked(name, "the stacks have no such resource")
            for identifier in ids:
                yield asked(name, identifier, check)
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
        function = self.client("lambda").get_function_configuration(FunctionName=name)
        state, update = function.get("State"), function.get("LastUpdateStatus")
        if not function["Handler"].startswith("delegation."):
            return not_checked("function", f"{name} belongs to the CDK")
        if function.get("Runtime") != RUNTIME:
            text = f"{name} runs on {function.get('Runtime')}, but the package is for {RUNTIME}"
            return failed("function", text, "Deploy with the package of this release (`python -m infra.package`).")
        if state not in {"Active", "Inactive"} or update not in {"Successful", None}:
            reason = function.get("StateReason") or function.get("LastUpdateStatusReason") or "no reason given"
            return failed("function", f"{name} is {state}, its last update {update}: {reason}", _AGAIN)
        return passed("function", f"{name} is {state} on {RUNTIME}, {'/'.join(function.get('Architectures', ()))}")

    def _mapping(self, name: str) -> CheckResult:
        mapping = self.client("lambda").get_event_source_mapping(UUID=name)
        text = f"{mapping['EventSourceArn'].rpartition(':')[2]} is {mapping['State']}"
        if mapping["State"] != "Enabled":
            return failed("queue's mapping", text, f"aws lambda update-event-source-mapping --uuid {name} --enabled")
        return passed("queue's mapping", text)

    def _rule(self, name: str) -> CheckResult:
        rule = name.rpartition("|")[2]
        description = self.client("events").describe_rule(Name=rule)
        text = f"{rule} is {description['State']}, {description.get('ScheduleExpression', 'by pattern')}"
        if description["State"] != "ENABLED":
            text = f"{text}, so the function that it starts does not run"
            return failed("schedule", text, f"aws events enable-rule --name {rule}")
        return passed("schedule", text)

    def _machine(self, arn: str) -> CheckResult:
        name = "state machine"
        machine = self.client("stepfunctions").describe_state_machine(stateMachineArn=arn)
        logging = machine.get("loggingConfiguration", {})
        groups = [each["cloudWatchLogsLogGroup"]["logGroupArn"] for each in logging.get("destinations", ())]
        named = [group.partition(":log-group:")[2].removesuffix(":*") for group in groups]
        if machine["status"] != "ACTIVE" or logging.get("level", "OFF") == "OFF":
            return failed(name, f"it is {machine['status']}, logs: {logging.get('level', 'OFF')}", _AGAIN)
        if not named or not named[0].startswith(LOG_GROUPS):
            fix = "Deploy again. Any other log group enlarges the account's CloudWatch Logs resource policy."
            return failed(name, f"it logs to {', '.join(named) or 'nothing'}, not below {LOG_GROUPS}", fix)
        logs = self.client("logs").describe_log_groups(logGroupNamePrefix=named[0])["logGroups"]
        if not any(group.get("storedBytes", 0) for group in logs):
            text = f"it is ACTIVE, but {named[0]} is still empty"
            return not_checked(name, f"{text}. Purge a table, then run the command again")
        return passed(name, f"it is ACTIVE and logs to {named[0]}")

    def _application(self, identifier: str) -> CheckResult:
        name = "EMR application"
        emr = self.client("emr-serverless")
        application = emr.get_application(applicationId=identifier)["application"]
        if application["state"] not in _USABLE:
            text = f"{identifier} is {application['state']}: {application.get('stateDetails', 'no reason given')}"
            return failed(name, text, _AGAIN)
        runs = emr.list_job_runs(applicationId=identifier, states=["SUCCESS"], maxResults=1)["jobRuns"]
        if not runs:
            text = (
                f"{identifier} is {application['state']}, {application['releaseLabel']}, and no job has succeeded yet"
            )
            return not_checked(name, f"{text}. Dry-run a purge with the property engine = spark")
        return passed(
            name, f"{identifier} is {application['state']}, {application['releaseLabel']}; a job has succeeded"
        )

    def _targets(self, arn: str) -> CheckResult:
        targets = self.client("elbv2").describe_target_health(TargetGroupArn=arn)["TargetHealthDescriptions"]
        states = sorted({each["TargetHealth"]["State"] for each in targets})
        if states != ["healthy"]:
            fix = "Check the security groups of load balancer and endpoint, and the API's domain as host."
            return failed(
                "load balancer's targets",
                f"targets are {', '.join(states)}" if states else "the load balancer has no targets",
                fix,
            )
        return passed("load balancer's targets", f"healthy: {counted(len(targets), 'target')}")

    def _topic(self, arn: str) -> CheckResult:
        subscriptions = self.client("sns").list_subscriptions_by_topic(TopicArn=arn)["Subscriptions"]
        confirmed = [each for each in subscriptions if each["SubscriptionArn"].startswith("arn:")]
        if not confirmed:
            fix = f"aws sns subscribe --topic-arn {arn} --protocol email --notification-endpoint ADDRESS; confirm it."
            return failed("alarms' topic", "the topic has no confirmed subscription, so alarms reach nobody", fix)
        return passed("alarms' topic", f"confirmed: {counted(len(confirmed), 'subscription')}")

    def _alarms(self, prefix: str) -> CheckResult:
        alarms: list[dict[str, Any]] = []
        for page in self.client("cloudwatch").get_paginator("describe_alarms").paginate(AlarmNamePrefix=prefix):
            alarms += page["MetricAlarms"]
        silent = [each["AlarmName"] for each in alarms if not (each["ActionsEnabled"] and each["AlarmActions"])]
        if not alarms:
            return failed("alarms", f"there are no alarms named {prefix}*", _AGAIN)
        if silent:
            fix = f"aws cloudwatch enable-alarm-actions --alarm-names {' '.join(silent)}, or deploy again."
            return failed("alarms", f"these alarms notify nobody: {', '.join(silent)}", fix)
        on = [each["AlarmName"] for each in alarms if each["StateValue"] == "ALARM"]
        if on:
            return failed("alarms", f"{', '.join(on)} {'is' if len(on) == 1 else 'are'} on", "See the runbook.")
        return passed("alarms", f"{counted(len(alarms), 'alarm')} with actions, none is on")


def _is_absent(error: Exception) -> bool:
    """Return whether CloudFormation knows no such stack: it answers ValidationError (API Reference, DescribeStacks)."""
    return isinstance(error, ClientError) and error.response["Error"]["Code"] == "ValidationError"


def _of_stack(name: str, error: Exception) -> CheckResult:
    if _is_absent(error):
        fix = "Deploy it, or name the stage with --stage; AWS_REGION must be the deployment's."
        return failed(f"stack {name}", "it does not exist", fix)
    return aws_failure(f"stack {name}", name, error)
