"""Templates with what LocalStack does not have taken out: decisions on values, without I/O."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from infra.local.errors import LocalStackError

Template = dict[str, Any]


class ReplacementIncomplete(LocalStackError):
    """A resource that remains refers to one that was taken out, and the list says nothing about that."""


class ReplacementUnused(LocalStackError):
    """The list names a type that no stack has."""


class NotCreated(LocalStackError):
    """LocalStack did not create a resource of a deployed template."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A resource type that is taken out of the templates, what replaces it, and what references to it become.

    `ref` is the value of `Ref`, `attributes` those of `Fn::GetAtt`; a reference without a value here is an error.
    """

    type: str
    by: str
    ref: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


def taken_out(template: Template, replaced: Collection[Replaced]) -> Template:
    """Return the template without resources of these types, their references resolved; raises ReplacementIncomplete."""
    of_type = {each.type: each for each in replaced}
    gone = {
        name: of_type[resource["Type"]]
        for name, resource in template["Resources"].items()
        if resource["Type"] in of_type
    }
    rest = deepcopy(template)
    rest["Resources"] = {name: each for name, each in rest["Resources"].items() if name not in gone}
    for name, resource in rest["Resources"].items():
        _forget(resource, gone)
        rest["Resources"][name] = _resolved(resource, gone, name)
    rest["Outputs"] = {name: _resolved(each, gone, name) for name, each in rest.get("Outputs", {}).items()}
    return _without_bootstrap(rest)


def changed(template: Template, resource_type: str, change: Callable[[Template], None]) -> Template:
    """Return the template with `change` applied to the properties of every resource of a type."""
    made = deepcopy(template)
    for resource in made["Resources"].values():
        if resource["Type"] == resource_type:
            change(resource.setdefault("Properties", {}))
    return made


def replaced_text(template: Template, texts: Mapping[str, str]) -> Template:
    """Return the template with texts replaced wherever they occur."""
    text = json.dumps(template)
    for before, after in texts.items():
        text = text.replace(before, after)
    made: Template = json.loads(text)
    return made


def require_used(replaced: Collection[Replaced], templates: Iterable[Template]) -> None:
    """Raise ReplacementUnused for an entry of the list whose type no template has."""
    present = frozenset[str]().union(*map(types_of, templates))
    absent = [each.type for each in replaced if each.type not in present]
    if absent:
        raise ReplacementUnused(f"no stack has {', '.join(absent)}: remove them from tests/localstack/replaced.py")


def types_of(template: Template) -> frozenset[str]:
    """Return the types of a template's resources."""
    return frozenset(resource["Type"] for resource in template["Resources"].values())


def require_created(template: Template, found: Collection[Mapping[str, str]]) -> None:
    """Raise NotCreated unless a stack's resources, as DescribeStackResources lists them, are those of its template.

    A type that LocalStack does not know has no physical id there, or the id `unknown`.
    """
    states = {each["LogicalResourceId"]: each for each in found}
    missing = []
    for name, resource in template["Resources"].items():
        state = states.get(name, {})
        if state.get("ResourceStatus") != "CREATE_COMPLETE" or state.get("PhysicalResourceId") in {None, "", "unknown"}:
            missing.append(f"{name} ({resource['Type']}): {state.get('ResourceStatus', 'absent')}")
    if missing:
        raise NotCreated(
            f"LocalStack created no {'; no '.join(missing)}. If nothing of the service rests on it, name the type in "
            "tests/localstack/replaced.py with what replaces it"
        )


def _forget(resource: Template, gone: Collection[str]) -> None:
    named = resource.pop("DependsOn", [])
    left = [name for name in ([named] if isinstance(named, str) else named) if name not in gone]
    if left:
        resource["DependsOn"] = left


def _resolved(value: Any, gone: Mapping[str, Replaced], where: str) -> Any:
    if isinstance(value, list):
        return [_resolved(each, gone, where) for each in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"Ref": str(name)} if name in gone:
            return _value(gone[name].ref, f"Ref of {gone[name].type}", where)
        case {"Fn::GetAtt": [str(name), str(attribute)]} if name in gone:
            return _value(gone[name].attributes.get(attribute), f"{attribute} of {gone[name].type}", where)
        case _:
            return {name: _resolved(each, gone, where) for name, each in value.items()}


def _value(value: str | None, what: str, where: str) -> str:
    if value is None:
        raise ReplacementIncomplete(
            f"{where} uses {what}, which is taken out: tests/localstack/replaced.py has no value"
        )
    return value


def _without_bootstrap(template: Template) -> Template:
    """Return the template without the check of the CDK's bootstrap stack, which LocalStack has none of."""
    template.pop("Rules", None)
    template.get("Parameters", {}).pop("BootstrapVersion", None)
    if not template.get("Parameters"):
        template.pop("Parameters", None)
    return template
