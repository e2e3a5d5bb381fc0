"""What CloudFormation states about the deployed stacks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from delegation.cli.deploying.changes import Template
from delegation.cli.errors import CommandError

_ABSENT = "ValidationError"
_ADVICE = "Set AWS_REGION and your credentials as for the AWS CLI."


@dataclass(frozen=True, slots=True)
class DeployedStacks:
    """Reads stacks through boto3's CloudFormation client; each method raises CommandError (BAD_CONNECTION)."""

    client: Any

    @classmethod
    def connect(cls) -> Self:
        """Return the stacks of the AWS environment's account and region."""
        try:
            return cls(boto3.client("cloudformation"))
        except BotoCoreError as error:
            raise CommandError(f"AWS: {error}", _ADVICE, code="BAD_CONNECTION") from error

    def template(self, stack: str) -> Template | None:
        """Return the template with which a stack was deployed, None if there is no such stack."""
        found = self._read("get_template", StackName=stack, TemplateStage="Original")
        if found is None:
            return None
        body = found["TemplateBody"]
        template: Template = json.loads(body) if isinstance(body, str) else body
        return template

    def identity(self, stack: str, name: str) -> str | None:
        """Return the physical id of a stack's resource, None if there is no such resource."""
        found = self._read("describe_stack_resource", StackName=stack, LogicalResourceId=name)
        return None if found is None else found["StackResourceDetail"].get("PhysicalResourceId")

    def imports(self, export: str) -> Sequence[str]:
        """Return the stacks that import an export."""
        names: list[str] = []
        token: dict[str, str] = {}
        while True:
            found = self._read("list_imports", ExportName=export, **token)
            if found is None:  # an export that nothing imports, too, is answered with a ValidationError
                return names
            names += found["Imports"]
            if "NextToken" not in found:
                return names
            token = {"NextToken": found["NextToken"]}

    def changes(self, stack: str, change_set: str) -> Sequence[Mapping[str, Any]]:
        """Return the changes of a change set, none if the stack has none of that name."""
        found: list[Mapping[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            page = self._read("describe_change_set", StackName=stack, ChangeSetName=change_set, **token)
            if page is None:
                return found
            found += page["Changes"]
            if "NextToken" not in page:
                return found
            token = {"NextToken": page["NextToken"]}

    def _read(self, operation: str, **arguments: Any) -> Mapping[str, Any] | None:
        try:
            answer: Mapping[str, Any] = getattr(self.client, operation)(**arguments)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in {_ABSENT, "ChangeSetNotFound"}:
                return None
            raise CommandError(f"AWS CloudFormation, {operation}: {code}", _ADVICE, code="BAD_CONNECTION") from error
        except BotoCoreError as error:
            raise CommandError(
                f"AWS CloudFormation, {operation}: {type(error).__name__}", _ADVICE, code="BAD_CONNECTION"
            ) from error
        return answer
