"""Deploys synthesised stacks by CloudFormation, as the CDK command does: assets into its bucket, then the templates."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localstack_client.session import Session

from infra.local.errors import LocalStackError
from tests.localstack.templates import Template, require_created

DEPLOY_SECONDS: Final = 1200.0
"""It takes two to three minutes on a quiet machine with two cores."""
_POLL_SECONDS: Final = 0.5


class DeploymentFailed(LocalStackError):
    """A stack did not reach CREATE_COMPLETE."""


@dataclass(frozen=True, slots=True)
class DeployedStack:
    """A stack as created: its outputs, and the physical id of each resource by logical id."""

    name: str
    outputs: Mapping[str, str]
    ids: Mapping[str, str]
    types: Mapping[str, str]
    seconds: float

    def only(self, resource_type: str, *parts: str) -> str:
        """Return the physical id of the one resource of a type whose logical id has all these parts."""
        found = [
            self.ids[name]
            for name, kind in self.types.items()
            if kind == resource_type and all(part in name for part in parts)
        ]
        if len(found) != 1:
            raise LookupError(f"{self.name} has {len(found)} resources of type {resource_type} with {parts}")
        return found[0]


class CloudFormation:
    """The deployments of one LocalStack; `assembly` is the folder that synthesis wrote."""

    def __init__(self, session: Session, assembly: Path, endpoint: str) -> None:
        self._assembly = assembly
        self._endpoint = endpoint
        self._s3 = session.client("s3")
        self._cloudformation = session.client("cloudformation")
        self._account = session.client("sts").get_caller_identity()["Account"]

    def template(self, stack: str) -> Template:
        """Return a template as it was synthesised."""
        found: Template = json.loads((self._assembly / f"{stack}.template.json").read_text(encoding="utf-8"))
        return found

    def deploy(self, stack: str, template: Template) -> DeployedStack:
        """Create a stack and check every resource; raises DeploymentFailed, NotCreated."""
        began = time.monotonic()
        bucket = self._upload(stack, json.dumps(template))
        # A template above 51,200 bytes is passed by URL (CloudFormation user guide, "Quotas").
        self._cloudformation.create_stack(
            StackName=stack,
            TemplateURL=f"{self._endpoint}/{bucket}/{stack}.json",
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        )
        described = self._wait(stack)
        found = self._cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
        require_created(template, found)
        return DeployedStack(
            stack,
            {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])},
            {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in found},
            {each["LogicalResourceId"]: each["ResourceType"] for each in found},
            time.monotonic() - began,
        )

    def _upload(self, stack: str, body: str) -> str:
        """Put a stack's assets and template into the bucket that `cdk bootstrap` would have made; return its name."""
        bucket = f"cdk-hnb659fds-assets-{self._account}-us-east-1"
        with suppress(self._s3.exceptions.BucketAlreadyOwnedByYou):
            self._s3.create_bucket(Bucket=bucket)
        assets = json.loads((self._assembly / f"{stack}.assets.json").read_text(encoding="utf-8"))["files"]
        for asset in assets.values():
            path = self._assembly / asset["source"]["path"]
            if path.name == f"{stack}.template.json":
                continue
            for destination in asset["destinations"].values():
                self._s3.upload_file(str(path), bucket, destination["objectKey"])
        self._s3.put_object(Bucket=bucket, Key=f"{stack}.json", Body=body.encode())
        return bucket

    def _wait(self, stack: str) -> dict[str, Any]:
        deadline = time.monotonic() + DEPLOY_SECONDS
        while True:
            described: dict[str, Any] = self._cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
            status = described["StackStatus"]
            if status == "CREATE_COMPLETE":
                return described
            if not status.endswith("_IN_PROGRESS") or time.monotonic() > deadline:
                reasons = [described.get("StackStatusReason", ""), *self._failures(stack)]
                raise DeploymentFailed(f"{stack} is {status}: {'; '.join(filter(None, reasons))}")
            time.sleep(_POLL_SECONDS)

    def _failures(self, stack: str) -> list[str]:
        events = self._cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
        return [
            f"{each['LogicalResourceId']} ({each['ResourceType']}): {each.get('ResourceStatusReason', 'no reason')}"
            for each in events
            if each["ResourceStatus"].endswith("FAILED")
        ]
