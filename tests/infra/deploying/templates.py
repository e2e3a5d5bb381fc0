"""What of a template matters to an update: resources that hold data or addresses, exports, and what is imported.

`python -m tests.infra.deploying.templates` writes those of this release to former.json, at a release.
"""

import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from delegation.cli.deployment.deploying import CREATE_ONLY, Template
from tests.infra.conftest import REGIONAL, TEMPLATES_ALONE, WITH_GATEWAY

FORMER = Path(__file__).with_name("former.json")
FORMER_APPLICATION = "00former0spark0"
STAGE = {"delegation:stage": "prod"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "NAT gateway": {"delegation:nat-gateways": 1},
    "gateway": WITH_GATEWAY,
    "more Spark": {"delegation:emr-max-vcpu": 128},
    "more Spark, and the former": {
        "delegation:emr-max-vcpu": 128,
        "delegation:emr-former-application-ids": FORMER_APPLICATION,
    },
    "key for all": {"delegation:customer-key-for": "queues,logs,topics"},
    "own key": {"delegation:kms-key-arn": REGIONAL["delegation:kms-key-arn"]},
    "gradual": {"delegation:gradual-deployment": "linear-10-percent-every-1-minute"},
    "regional": {**REGIONAL, **STAGE},
    "private only": {"delegation:vpc-layout": "private-only"},
    "another stage": {"delegation:stage": "test"},
}
RECORDED = ("as it is", "NAT gateway", "gateway")


@cache
def synthesized(name: str) -> dict[str, Template]:
    """The templates of a named choice of settings, by stack name; each is synthesized once per process."""
    from infra.stacks.build import build

    with tempfile.TemporaryDirectory() as folder:
        app = build({**TEMPLATES_ALONE, **STAGE, **SETTINGS[name]}, outdir=folder).app.synth()
        return {stack.stack_name: stack.template for stack in app.stacks}


def skeleton(template: Template) -> dict[str, Any]:
    """As much of a template as decides whether an update does harm."""
    kept = {**dict.fromkeys(CREATE_ONLY), "AWS::EMRServerless::Application": None}
    resources = {
        name: one for name, one in template["Resources"].items() if one["Type"] in kept or _starts_jobs(name, one)
    }
    outputs = {name: one for name, one in template.get("Outputs", {}).items() if "Export" in one}
    return {"Resources": resources, "Outputs": outputs, "Imports": sorted(_imported(template))}


def _starts_jobs(name: str, resource: Template) -> bool:
    return resource["Type"] == "AWS::Lambda::Function" and "StartJob" in name


def _imported(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["Fn::ImportValue"]} if isinstance(value.get("Fn::ImportValue"), str) else set[str]()
        return own.union(*map(_imported, value.values()))
    return set[str]().union(*map(_imported, value)) if isinstance(value, list) else set[str]()


def imports_in(skeletons: Mapping[str, Mapping[str, Any]]) -> Any:
    """Which stacks of skeletons import an export."""
    return lambda export: [stack for stack, one in skeletons.items() if export in one["Imports"]]


def main() -> None:
    found = {name: {stack: skeleton(one) for stack, one in synthesized(name).items()} for name in RECORDED}
    FORMER.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
