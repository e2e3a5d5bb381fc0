"""`delegation deploy-check`: compares what is deployed with what is synthesized, and refuses harmful changes.

AWS CloudFormation User Guide, "Update behaviors of stack resources"; CloudFormation API Reference, ResourceChange.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self

from rich.text import Text

from delegation.cli.calls import Call, command, defaulted, optional
from delegation.cli.errors import CommandError
from delegation.cli.screens import WrappedText
from polaris_common.errors import counted

Template = Mapping[str, Any]

CREATE_ONLY: Final[Mapping[str, frozenset[str]]] = {
    "AWS::DynamoDB::Table": frozenset({"TableName"}),
    "AWS::S3::Bucket": frozenset({"BucketName"}),
    "AWS::KMS::Key": frozenset(),
    "AWS::SecretsManager::Secret": frozenset({"Name"}),
    "AWS::SQS::Queue": frozenset({"QueueName", "FifoQueue"}),
    "AWS::EC2::VPC": frozenset({"CidrBlock", "Ipv4IpamPoolId"}),
    "AWS::EC2::Subnet": frozenset({"AvailabilityZone", "CidrBlock", "VpcId"}),
}
"""Resources with data or addresses, and the properties whose change replaces them (AWS Template Reference Guide)."""
_NETWORK: Final = frozenset({"AWS::EC2::VPC", "AWS::EC2::Subnet"})
_FORMER_APPLICATIONS: Final = "DELEGATION_EMR_FORMER_APPLICATION_IDS"
_TABLE: Final = "AWS::DynamoDB::Table"
_APPLICATION: Final = "AWS::EMRServerless::Application"
_RETAINED: Final = frozenset({"Retain", "RetainExceptOnCreate"})


class Risk(StrEnum):
    REPLACED = "REPLACED"
    REMOVED = "REMOVED"
    NETWORK_REPLACED = "NETWORK_REPLACED"
    EXPORT_IN_USE = "EXPORT_IN_USE"
    APPLICATION_MUST_STOP = "APPLICATION_MUST_STOP"
    APPLICATION_LEFT = "APPLICATION_LEFT"
    INDEXES_AT_ONCE = "INDEXES_AT_ONCE"


ADVICE: Final[Mapping[Risk, str]] = {
    Risk.REPLACED: "Undo the setting that changes the resource. A new, empty resource would replace it.",
    Risk.REMOVED: "Undo the setting that removes the resource. Otherwise the kept resource belongs to no stack, and a "
    "later deployment creates an empty resource.",
    Risk.NETWORK_REPLACED: "Undo the setting, or keep the ranges with `delegation:vpc-layout`. Subnets in use cannot "
    "be replaced by subnets with overlapping ranges.",
    Risk.EXPORT_IN_USE: "First deploy only the importing stacks (`cdk deploy --exclusively STACK`). Delete stacks that "
    "the settings no longer define.",
    Risk.APPLICATION_MUST_STOP: "Deploy while no Spark job runs: `delegation drain`, then `aws emr-serverless "
    "stop-application --application-id ID`, deploy, `delegation resume`.",
    Risk.INDEXES_AT_ONCE: "Add one index per deployment. For the task table, deploy with `-c "
    "delegation:task-indexes=N`, starting with one index more than it has. Finally deploy without the setting.",
    Risk.APPLICATION_LEFT: "Add the application's id to `delegation:emr-former-application-ids`, so that the functions "
    "watch its jobs until they end. The application is kept and costs nothing while idle. Delete it when no job is "
    "left.",
}


@dataclass(frozen=True, slots=True)
class Danger:
    """A change that must not be deployed: the stack, the resource or export, and what would happen to it."""

    harm: Risk
    stack: str
    name: str
    reason: str

    @property
    def advice(self) -> str:
        return ADVICE[self.harm]


Imports = Callable[[str], Sequence[str]]
Identities = Callable[[str, str], str | None]
"""Returns the id of a deployed resource by its stack and its logical id, None if it has none."""


def dangers_of(
    former: Mapping[str, Template],
    new: Mapping[str, Template],
    imports: Imports,
    identities: Identities = lambda _stack, _name: None,
) -> list[Danger]:
    """Return what must not be deployed, by the former and the new templates of each stack; the CDK deletes no stack."""
    dangers: list[Danger] = []
    for stack, before in former.items():
        after = new.get(stack)
        if after is not None:
            dangers += [*_of_resources(stack, before, after), *_of_exports(stack, before, after, imports)]
            dangers += _of_applications(stack, before, after, identities)
    return dangers


def _of_resources(stack: str, before: Template, after: Template) -> Iterator[Danger]:
    others = after.get("Resources", {})
    for name, resource in before.get("Resources", {}).items():
        kind = resource["Type"]
        if kind not in CREATE_ONLY and kind != _APPLICATION:
            continue
        other = others.get(name)
        if other is None or other["Type"] != kind:
            if kind not in _NETWORK and kind != _APPLICATION:
                kept = "kept without a stack" if resource.get("DeletionPolicy") in _RETAINED else "deleted"
                yield Danger(Risk.REMOVED, stack, name, f"the {kind} would be {kept}")
            continue
        changed = _changed(resource, other)
        if kind == _APPLICATION:
            if changed - {"Tags"}:
                text = f"{', '.join(sorted(changed))} can be changed only while the application is stopped"
                yield Danger(Risk.APPLICATION_MUST_STOP, stack, name, text)
        elif replacing := sorted(changed & CREATE_ONLY[kind]):
            harm = Risk.NETWORK_REPLACED if kind in _NETWORK else Risk.REPLACED
            yield Danger(
                harm, stack, name, f"the {kind} would be replaced because of changes to its {', '.join(replacing)}"
            )
        elif kind == _TABLE and len(indexes := sorted(_indexes(resource) ^ _indexes(other))) > 1:
            text = f"DynamoDB adds or removes one index per update, but this update has {', '.join(indexes)}"
            yield Danger(Risk.INDEXES_AT_ONCE, stack, name, text)


def _of_applications(stack: str, before: Template, after: Template, identities: Identities) -> Iterator[Danger]:
    others, known = after.get("Resources", {}), _former_applications(after)
    for name, resource in before.get("Resources", {}).items():
        if resource["Type"] == _APPLICATION and name not in others:
            identity = identities(stack, name)
            if identity not in known:
                text = f"the application {identity or 'of this name'} would be replaced while its jobs may be running"
                yield Danger(Risk.APPLICATION_LEFT, stack, name, text)


def _former_applications(template: Template) -> frozenset[str]:
    applications: list[frozenset[str]] = []
    for resource in template.get("Resources", {}).values():
        if resource["Type"] == "AWS::Lambda::Function":
            variables = resource.get("Properties", {}).get("Environment", {}).get("Variables", {})
            if "DELEGATION_EMR_APPLICATION_ID" in variables:
                applications.append(frozenset(variables.get(_FORMER_APPLICATIONS, "").split(",")))
    return frozenset.intersection(*applications) if applications else frozenset()


def _indexes(table: Mapping[str, Any]) -> set[str]:
    return {index["IndexName"] for index in table.get("Properties", {}).get("GlobalSecondaryIndexes", ())}


def _changed(former: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    before, after = former.get("Properties", {}), other.get("Properties", {})
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _of_exports(stack: str, before: Template, after: Template, imports: Imports) -> Iterator[Danger]:
    kept = dict(_exports(after))
    for name, value in _exports(before):
        if kept.get(name) == value:
            continue
        users = imports(name)
        if users:
            what = "change its value" if name in kept else "be removed"
            yield Danger(
                Risk.EXPORT_IN_USE, stack, name, f"the export would {what}, but it is imported by {', '.join(users)}"
            )


def _exports(template: Template) -> Iterator[tuple[str, str]]:
    for output in template.get("Outputs", {}).values():
        name = output.get("Export", {}).get("Name")
        if isinstance(name, str):
            yield name, json.dumps(output["Value"], sort_keys=True)


def dangers_of_change_set(stack: str, changes: Sequence[Mapping[str, Any]]) -> list[Danger]:
    """Return which of a change set's Changes must not be executed; CloudFormation knows every replacement."""
    dangers = []
    for change in changes:
        resource = change.get("ResourceChange", {})
        kind = resource.get("ResourceType")
        if kind not in CREATE_ONLY:
            continue
        name, action, replaced = resource["LogicalResourceId"], resource["Action"], resource.get("Replacement")
        if action == "Remove" and kind not in _NETWORK:
            dangers.append(Danger(Risk.REMOVED, stack, name, f"the {kind} would be removed"))
        elif action == "Modify" and replaced in {"True", "Conditional"}:
            harm = Risk.NETWORK_REPLACED if kind in _NETWORK else Risk.REPLACED
            word = "would" if replaced == "True" else "may"
            dangers.append(Danger(harm, stack, name, f"the {kind} {word} be replaced"))
    return dangers


_ABSENT = "ValidationError"
_ADVICE = "Set AWS_REGION and your credentials as for the AWS CLI."


def _call_failed(operation: str, reason: str) -> CommandError:
    return CommandError(f"the call {operation} to AWS CloudFormation failed: {reason}", _ADVICE, code="BAD_CONNECTION")


@dataclass(frozen=True, slots=True)
class DeployedStacks:
    """Reads stacks through boto3's CloudFormation client; each method raises CommandError (BAD_CONNECTION)."""

    client: Any

    @classmethod
    def connect(cls) -> Self:
        import boto3  # noqa: PLC0415 - commands that call the API work without it
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        try:
            return cls(boto3.client("cloudformation"))
        except BotoCoreError as error:
            raise CommandError(f"AWS: {error}", _ADVICE, code="BAD_CONNECTION") from error

    def template(self, stack: str) -> Template | None:
        """Return the template with which a stack was deployed, None without the stack."""
        answer = self._read("get_template", StackName=stack, TemplateStage="Original")
        if answer is None:
            return None
        body = answer["TemplateBody"]
        template: Template = json.loads(body) if isinstance(body, str) else body
        return template

    def identity(self, stack: str, name: str) -> str | None:
        """Return the physical id of a stack's resource, None without the resource."""
        answer = self._read("describe_stack_resource", StackName=stack, LogicalResourceId=name)
        return None if answer is None else answer["StackResourceDetail"].get("PhysicalResourceId")

    def imports(self, export: str) -> Sequence[str]:
        # For an export without imports, too, the answer is a ValidationError.
        return self._all("list_imports", "Imports", ExportName=export)

    def changes(self, stack: str, change_set: str) -> Sequence[Mapping[str, Any]]:
        return self._all("describe_change_set", "Changes", StackName=stack, ChangeSetName=change_set)

    def _all(self, operation: str, member: str, **arguments: Any) -> list[Any]:
        values: list[Any] = []
        while (page := self._read(operation, **arguments)) is not None:
            values += page[member]
            if "NextToken" not in page:
                break
            arguments["NextToken"] = page["NextToken"]
        return values

    def _read(self, operation: str, **arguments: Any) -> Mapping[str, Any] | None:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            answer: Mapping[str, Any] = getattr(self.client, operation)(**arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in {_ABSENT, "ChangeSetNotFound"}:
                return None
            raise _call_failed(operation, code) from error
        except BotoCoreError as error:
            raise _call_failed(operation, type(error).__name__) from error
        return answer


_MANIFEST: Final = "manifest.json"
_STACK: Final = "aws:cloudformation:stack"


@command(takes="")
def deploy_check_command(
    call: Call,
    *,
    folder: Path = defaulted(
        "--app", "The folder with the templates of `cdk synth`.", Path("cdk.out"), metavar="FOLDER"
    ),
    change_set: str | None = optional(
        "--change-set",
        "Also read the change sets of this name (`cdk deploy --method prepare-change-set`).",
        "NAME",
    ),
) -> None:
    """Check that a deployment keeps everything that holds data; change nothing.

    Compares the deployed tables, buckets, keys, secrets, queues, subnets, exports and Spark applications with the
    synthesized templates.
    """
    deployed = DeployedStacks.connect()
    dangers = check(synthesized(folder), deployed, change_set)
    call.output.result({"refused": [{**asdict(danger), "advice": danger.advice} for danger in dangers]})
    if not dangers:
        call.output.say("Nothing that holds data is replaced or removed.")
        return
    for danger in dangers:
        call.output.show(WrappedText(Text.assemble(("✗ ", "bold red"), (f"{danger.stack} {danger.name}", "bold"))))
        call.output.show(WrappedText(f"{danger.reason}. {danger.advice}", indent=2))
    raise CommandError(
        f"{counted(len(dangers), 'change')} must not be deployed",
        "Nothing was deployed. Follow the advice below each change.",
        code="DEPLOY_REFUSED",
    )


def synthesized(folder: Path) -> dict[str, Template]:
    """Return the templates in a cloud assembly by stack name. Raises CommandError (NOT_SYNTHESIZED)."""
    try:
        artifacts = json.loads((folder / _MANIFEST).read_bytes()).get("artifacts", {})
        stacks = {
            artifact.get("properties", {}).get("stackName", name): artifact["properties"]["templateFile"]
            for name, artifact in artifacts.items()
            if artifact["type"] == _STACK
        }
        return {name: json.loads((folder / file).read_bytes()) for name, file in stacks.items()}
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise CommandError(
            f"{folder} has no synthesized templates",
            "Run `cdk synth` first, or name its output folder with --app.",
            code="NOT_SYNTHESIZED",
        ) from error


def check(new: Mapping[str, Template], deployed: DeployedStacks, change_set: str | None) -> list[Danger]:
    """Return what must not be deployed; a stack that is not deployed yet holds nothing."""
    former = {name: template for name in new if (template := deployed.template(name)) is not None}
    dangers = dangers_of(former, new, deployed.imports, deployed.identity)
    if change_set is not None:
        known = {(danger.stack, danger.name) for danger in dangers}
        for name in former:
            more = dangers_of_change_set(name, deployed.changes(name, change_set))
            dangers += [danger for danger in more if (danger.stack, danger.name) not in known]
    return dangers
