"""samplconfig.toml and its file of variables hold for the synthesized templates, so that neither drifts."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from infra.environment.context import default_properties
from infra.environment.functions import GATEWAY, deployed_functions
from tests.paths import EVENTS, ROOT

TEXT = (ROOT / "samplconfig.toml").read_text(encoding="utf-8")
CONFIG = tomllib.loads(TEXT)
ENVIRONMENTS = ("data", "network", "default")
"""The environments of the file, one for each stack, in the order of deployment."""
LARGEST_BODY_BYTES = 51_200
"""CloudFormation user guide, "Quotas": a larger template must be passed by S3 object."""
GIVEN = json.loads((ROOT / "sam-environment.json").read_text(encoding="utf-8"))["Parameters"]


def parameters(environment: str, command: str) -> dict[str, Any]:
    shared: dict[str, Any] = CONFIG[environment]["global"]["parameters"]
    return {**shared, **CONFIG[environment][command]["parameters"]}


def template(outdir: Path, environment: str) -> dict[str, Any]:
    named = Path(parameters(environment, "deploy")["template_file"])
    found: dict[str, Any] = json.loads((outdir / named.name).read_text(encoding="utf-8"))
    return found


def functions(outdir: Path) -> dict[str, dict[str, Any]]:
    """The functions of the service stack by the name under which SAM finds them."""
    found = [each for each in template(outdir, "default")["Resources"].values() if each["Type"].endswith("::Function")]
    return {each["Metadata"]["SamResourceId"]: each for each in found}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_each_command_names_a_template_that_synthesis_writes_to_where_the_cdk_command_puts_it(
    outdir: Path, environment: str
) -> None:
    output = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["output"]
    named = [
        Path(command["parameters"]["template_file"])
        for command in CONFIG[environment].values()
        if "template_file" in command["parameters"]
    ]
    assert {path.parent for path in named} == {Path(output)}
    assert [path.name for path in named if not (outdir / path.name).exists()] == []


def test_the_file_has_an_environment_for_each_stack_and_the_stack_of_its_template(outdir: Path) -> None:
    assert {name for name in CONFIG if name != "version"} == set(ENVIRONMENTS)
    stacks = {environment: parameters(environment, "deploy")["stack_name"] for environment in ENVIRONMENTS}
    assert sorted(stacks.values()) == sorted(path.name.partition(".")[0] for path in outdir.glob("*.template.json"))
    for environment, stack in stacks.items():
        assert Path(parameters(environment, "deploy")["template_file"]).name == f"{stack}.template.json"


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_sam_deploys_with_what_the_template_demands(outdir: Path, environment: str) -> None:
    given, deployed = parameters(environment, "deploy"), template(outdir, environment)
    resources = deployed["Resources"].values()
    with_roles = any(each["Type"].startswith("AWS::IAM::") for each in resources)
    named = any("RoleName" in each.get("Properties", {}) for each in resources)
    expected = "CAPABILITY_NAMED_IAM" if named else "CAPABILITY_IAM" if with_roles else None
    assert given.get("capabilities") == expected
    demanded = {name for name, each in deployed.get("Parameters", {}).items() if "Default" not in each}
    assert demanded == {one.partition("=")[0] for one in given.get("parameter_overrides", "").split()}
    assert given["resolve_s3"] or len(json.dumps(deployed)) <= LARGEST_BODY_BYTES


def test_the_stacks_are_deployed_after_those_whose_values_they_import(outdir: Path) -> None:
    exported: set[str] = set()
    for environment in ENVIRONMENTS:
        deployed = template(outdir, environment)
        assert imports(deployed) <= exported
        exported |= {each["Export"]["Name"] for each in deployed.get("Outputs", {}).values() if "Export" in each}
    commands = re.findall(r"sam deploy --config-file samplconfig.toml(?: --config-env (\w+))?", TEXT)
    assert tuple(name or "default" for name in commands) == ENVIRONMENTS


def imports(value: Any) -> set[str]:
    if isinstance(value, list):
        return set[str]().union(*map(imports, value))
    if not isinstance(value, dict):
        return set()
    own = {value["Fn::ImportValue"]} if isinstance(value.get("Fn::ImportValue"), str) else set()
    return own.union(*map(imports, value.values()))


def test_the_variables_that_only_a_deployment_knows_are_in_the_file_and_no_others(outdir: Path) -> None:
    """SAM resolves neither imports nor attributes: without a value of the file the function would get an empty one."""
    unknown = {
        name
        for function in functions(outdir).values()
        for name, value in function["Properties"]["Environment"]["Variables"].items()
        if not isinstance(value, str)
    }
    assert unknown == set(GIVEN)
    for command in ("local_invoke", "local_start_lambda"):
        assert CONFIG["default"][command]["parameters"]["env_vars"] == "sam-environment.json"


def test_the_vpc_endpoint_is_that_of_the_authorizers_sample_event() -> None:
    event = json.loads((EVENTS / "authorizer-private.json").read_text(encoding="utf-8"))
    assert event["requestContext"]["identity"]["vpceId"] == GIVEN["DELEGATION_CLIENT_VPC_ENDPOINTS"]


def test_sam_finds_each_function_by_its_name_and_its_code_without_sam_build(outdir: Path) -> None:
    found = functions(outdir)
    assert set(found) == set(deployed_functions(default_properties()))
    for function in found.values():
        assert function["Metadata"]["aws:asset:property"] == "Code"
        assert (outdir / function["Metadata"]["aws:asset:path"]).exists()


def test_the_example_in_the_file_is_a_function_and_one_of_its_events(outdir: Path) -> None:
    (name, event) = re.findall(r"sam local invoke (\S+) .*--event (\S+)", TEXT)[0]
    assert name in functions(outdir)
    assert (ROOT / event).is_file()


def test_each_event_belongs_to_a_function_that_sam_or_the_gateways_stack_has(outdir: Path) -> None:
    names = {path.stem.partition("-")[0] for path in EVENTS.glob("*.json")}
    # Notifications, the rotation of the secret and the probe are off by default.
    assert names - {"notifier", "rotate_secret", "probe_front"} == {*functions(outdir), GATEWAY.name}
