"""What the roles of templates allow: a role, an action and a resource, by the name of the setting that has it."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_PSEUDO: Final = "AWS::"
_SETTING: Final = "DELEGATION_"
_REFERENCE: Final = re.compile(r"<(?P<resource>[^.>]+\.[^.>]+)(?:\.[^>]+)?>")
_ASSET: Final = re.compile(r"^arn:\{AWS::Partition\}:s3:::cdk-[^/]*-assets-[^/]*/.*$")
_HANDLER: Final = re.compile(r"^delegation\.handlers\.(?:(?P<name>\w+)\.handler|\w+\.(?P<state>\w+))$")
_THROUGH: Final = re.compile(r"^(?P<service>[a-z0-9-]+)\.")

_HASH: Final = 8
"""The characters that the CDK appends to a logical id."""
JOBS: Final = "spark_job"
STATE_MACHINE: Final = "state_machine"
API_ADDRESS: Final = "api_address"
FLOW_LOG: Final = "flow_log"
ACCOUNT_LOG: Final = "api_log"
_OTHERS: Final = {
    "SparkJobRole": JOBS,
    "WorkflowRole": STATE_MACHINE,
    "ApiAddressRole": API_ADDRESS,
    "VpcCreatedFlowIAMRole": FLOW_LOG,
    "ApiLogRole": ACCOUNT_LOG,
}
"""The names here of the roles that no function has, by their logical ids."""

Templates = Mapping[str, Mapping[str, Any]]
"""Templates by the names of their stacks."""


@dataclass(frozen=True, slots=True, order=True)
class Allowed:
    """An action that a role has on a resource."""

    role: str
    action: str
    resource: str

    def __str__(self) -> str:
        return f"{self.role} {self.action} on {self.resource}"


@dataclass(frozen=True, slots=True)
class Role:
    """A role of a template; `name` is its function's, `document` its resource."""

    name: str
    stack: str
    document: Mapping[str, Any]


def roles_of(templates: Templates) -> Iterator[Role]:
    """Yield every role: that of a function has the function's name, another one a name of this module."""
    for stack, template in templates.items():
        functions = {
            body["Properties"]["Role"]["Fn::GetAtt"][0]: _handler(body)
            for body in _of_type(template, "AWS::Lambda::Function").values()
        }
        for logical_id, body in _of_type(template, "AWS::IAM::Role").items():
            name = logical_id[:-_HASH]
            yield Role(functions.get(logical_id) or _OTHERS.get(name, name), stack, body)


def allowed_by(role: Role, templates: Templates) -> list[Allowed]:
    """Return each action that the role's Allow statements name on each resource, as often as it is named."""
    names = _names(role, templates)
    found: list[Allowed] = []
    for statement in statements_of(role, templates):
        through = _condition(statement, role.stack, templates)
        resources = [canonical(each, role.stack, templates) for each in _list(statement["Resource"])]
        # A setting may name several objects, such as revocation lists.
        shown = dict.fromkeys(_shown(each, names, templates) + through for each in resources)
        for action in _list(statement["Action"]) if statement["Effect"] == "Allow" else []:
            found += [Allowed(role.name, action, resource) for resource in shown]
    return found


def statements_of(role: Role, templates: Templates) -> Iterator[Mapping[str, Any]]:
    """Yield the statements of a role's own policies, and of those that name the role."""
    for policy in role.document["Properties"].get("Policies", []):
        yield from policy["PolicyDocument"]["Statement"]
    for body in _of_type(templates[role.stack], "AWS::IAM::Policy").values():
        if any(
            templates[role.stack]["Resources"].get(each.get("Ref")) == role.document
            for each in body["Properties"]["Roles"]
        ):
            yield from body["Properties"]["PolicyDocument"]["Statement"]


def canonical(value: Any, stack: str, templates: Templates) -> str:
    """Return a value as text: `<Stack.LogicalId.Attribute>` for a reference, also for one into another stack."""
    match value:
        case str():
            return value
        case {"Ref": str(name)}:
            return f"{{{name}}}" if name.startswith(_PSEUDO) else f"<{stack}.{name}>"
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return f"<{stack}.{name}.{attribute}>"
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(canonical(part, stack, templates) for part in parts)
        case {"Fn::Sub": str(text)}:
            return text.replace("${", "{")
        case {"Fn::ImportValue": str(export)}:
            return _exported(export, templates)
        case _:
            raise ValueError(f"{value} in {stack} is an intrinsic function that the comparison does not read")


def _exported(export: str, templates: Templates) -> str:
    for stack, template in templates.items():
        for output in template.get("Outputs", {}).values():
            if output.get("Export", {}).get("Name") == export:
                return canonical(output["Value"], stack, templates)
    raise ValueError(f"no stack exports {export}")


def _names(role: Role, templates: Templates) -> dict[str, str]:
    """Return the settings by the ARNs that they name, from the variables of the role's function or of its stack's.

    A Spark job has its variables in the parameters of the function that starts it, with the same values.
    """
    found: dict[str, str] = {}
    for body in _of_type(templates[role.stack], "AWS::Lambda::Function").values():
        variables = body["Properties"].get("Environment", {}).get("Variables", {})
        for name, value in sorted(variables.items()):
            if name.startswith(_SETTING) and not name.endswith("PARAMETERS"):
                for arn in _arns(name, canonical(value, role.stack, templates)):
                    found.setdefault(arn, name)
    return found


def _arns(setting: str, text: str) -> Iterator[str]:
    """Yield the ARNs of what a setting names: itself, the ARN of the resource referred to, that of a bus or object."""
    yield text
    if whole := _REFERENCE.fullmatch(text):
        yield f"<{whole['resource']}.Arn>"
    if setting == "DELEGATION_EVENT_BUS":
        yield f"arn:{{AWS::Partition}}:events:{{AWS::Region}}:{{AWS::AccountId}}:event-bus/{text}"
    for url in text.split(","):
        bucket, _, key = url.removeprefix("s3://").partition("/")
        if url.startswith("s3://") and key:
            yield f"arn:{{AWS::Partition}}:s3:::{bucket}/{key}"


def _shown(resource: str, names: Mapping[str, str], templates: Templates) -> str:
    """Return `{SETTING}` and the rest of the ARN, otherwise the type of the resource, or the text."""
    for arn, name in names.items():
        if resource == arn or resource.startswith(f"{arn}/"):
            return f"{{{name}}}{resource.removeprefix(arn)}"
    if _ASSET.match(resource):
        return "asset"
    if found := _REFERENCE.match(resource):
        stack, _, logical_id = found["resource"].partition(".")
        body = templates[stack]["Resources"][logical_id]
        named = _handler(body) if body["Type"] == "AWS::Lambda::Function" else None
        return f"{body['Type']}{resource[found.end() :]}" if named is None else f"function {named}"
    return resource


def _condition(statement: Mapping[str, Any], stack: str, templates: Templates) -> str:
    """Return ` through SERVICE` for a statement that allows use through one AWS service alone."""
    through = statement.get("Condition", {}).get("StringEquals", {}).get("kms:ViaService")
    found = None if through is None else _THROUGH.match(canonical(through, stack, templates))
    return f" through {found['service']}" if found else ""


def _handler(function: Mapping[str, Any]) -> str | None:
    """Return the name of a function of the service; None for another function."""
    found = _HANDLER.match(function["Properties"]["Handler"])
    return found["name"] or found["state"] if found else None


def _of_type(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {name: body for name, body in template["Resources"].items() if body["Type"] == kind}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def doubled(allowed: Iterable[Allowed]) -> list[Allowed]:
    """Return what is allowed more than once, so that removing one of its statements would change nothing."""
    seen: set[Allowed] = set()
    twice: list[Allowed] = []
    for each in allowed:
        (twice.append if each in seen else seen.add)(each)
    return twice
