"""How docs/openapi.yaml differs from the proposal's appendix; `make regenerate` writes a page.

A difference is an addition, a limit (a request that the appendix's types admit is refused), or a fault.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from tests.paths import ROOT

APPENDIX = ROOT / "tests" / "fixtures" / "appendix.yaml"
PAGE = ROOT / "docs" / "extensions.md"
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_WORDS = {
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} members",
}
_OPERATION = re.compile(r"operation `\w+`: ")
_SILENT = frozenset({"description", "example", "examples", "properties", "required", "items", "additionalProperties"})

_INTRODUCTION = """# What the API adds to the proposal

[openapi.yaml](openapi.yaml) has everything in the appendix of the Delegation Service proposal, under the same names.
This page, written by `make regenerate`, lists the rest. `make schemathesis` tests the API against both documents.
"""


_KEYS = """
## Keys: the proposal, Polaris 1.8 and this service

| | Idempotency-Key proposal | Polaris 1.8 | this service and its gateway |
|---|---|---|---|
| switch | a setting | `polaris.idempotency.enabled`, off | the same name, on |
| lifetime | `polaris.idempotency.lifetime` | `polaris.idempotency.ttl`, `PT5M` | both names, `PT30M` |
| advertised in `GET /v1/config` | two entries of `properties` | `idempotency-key-lifetime` at the top level | both |
| key | 1 to 255 letters, digits, `_`, `.`, `-` | a UUID, else 400 `InvalidIdempotencyKey` \
| as the proposal; an empty key is refused |
| operations | every mutation | `createTable`, `updateTable` \
| API: every change. Gateway: every mutation of the Iceberg REST API; other mutations with a key are refused |
| scope of a key | method, path, tenant | the table | method, path, realm, principal |
| same key, another payload | 422 | the first answer | 422 |
| same key, first call still running | 409 | the current table, or a second execution \
| API: 409. Gateway: waits, then 504 |
| lost answer | reconciled | the current table \
| the stored answer, or the outcome that the catalog's state or Polaris' record proves |
"""


def load(path: Any) -> dict[str, Any]:
    """Return an OpenAPI document."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


@dataclass
class Differences:
    """The differences of a document `ours` from `theirs`, as lines of text."""

    theirs: Mapping[str, Any]
    ours: Mapping[str, Any]
    additions: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def find(self) -> "Differences":
        """Compare the operations, the security schemes and the names of the components."""
        for name, (path, method, operation) in _operations(self.theirs).items():
            self._operation(name, path, method, operation)
        known = _operations(self.theirs)
        for name, (path, method, _) in _operations(self.ours).items():
            if name not in known:
                self.additions.append(f"operation `{name}`: `{method.upper()} {path}`")
        for kind, entries in self.theirs["components"].items():
            for name in entries.keys() - self.ours["components"].get(kind, {}).keys():
                self.faults.append(f"{kind} lacks {name}")
        self._security()
        return self

    def _security(self) -> None:
        theirs, ours = (side["components"]["securitySchemes"] for side in (self.theirs, self.ours))
        for name, scheme in theirs.items():
            same = {key: scheme[key] for key in ("type", "scheme", "bearerFormat") if key in scheme}
            if not same.items() <= ours.get(name, {}).items():
                self.faults.append(f"security scheme {name} differs")
        scopes = [side["OAuth2"]["flows"]["clientCredentials"]["scopes"].keys() for side in (theirs, ours)]
        if not scopes[0] <= scopes[1] or self.theirs["security"] != self.ours["security"]:
            self.faults.append("the scopes or the security requirement differ")
        self.additions += [f"scope `{scope}`" for scope in sorted(scopes[1] - scopes[0])]

    def _operation(self, name: str, path: str, method: str, theirs: Mapping[str, Any]) -> None:
        found_path, found_method, ours = _operations(self.ours).get(name, ("", "", {}))
        if (found_path, found_method) != (path, method) or not set(theirs["tags"]) <= set(ours.get("tags", ())):
            self.faults.append(f"operation {name} has another path, method or tag")
            return
        for each in ours.get("parameters", ()):
            parameter = self._resolved(self.ours, each)
            word = "required " if parameter.get("required") else ""
            self.additions.append(f"{word}{parameter['in']} parameter `{parameter['name']}` of `{name}`")
            if word:
                self.faults.append(f"operation {name} requires {parameter['name']}")
        bodies = [side["requestBody"]["content"]["application/json"]["schema"] for side in (theirs, ours)]
        self._request(*bodies, at="")
        for status, response in theirs["responses"].items():
            if status not in ours["responses"]:
                self.faults.append(f"operation {name} lacks {status}")
                continue
            self._response(name, status, response, ours["responses"][status])
        more = sorted(ours["responses"].keys() - theirs["responses"].keys())
        self.additions.append(f"statuses of `{name}`: {', '.join(more)}")

    def _response(self, name: str, status: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
        if theirs.get("$ref") != ours.get("$ref"):
            self.faults.append(f"{status} of {name} has another name")
        theirs, ours = self._resolved(self.theirs, theirs), self._resolved(self.ours, ours)
        bodies = [side["content"]["application/json"]["schema"] for side in (theirs, ours)]
        if bodies[0].get("$ref") != bodies[1].get("$ref"):
            self.faults.append(f"{status} of {name} has a body of another name")
        self._answer(*bodies, at=bodies[0]["$ref"].rpartition("/")[2])
        self.additions += [
            line
            for header in ours.get("headers", ())
            if (line := f"header `{header}` of {status}") not in self.additions
        ]

    def _request(self, theirs: Mapping[str, Any], ours: Mapping[str, Any], at: str) -> None:
        """Compare the schema of a part of a request: what theirs admits, ours must admit or list as a limit."""
        ours = self._form(theirs, ours, at)
        theirs, ours = self._resolved(self.theirs, theirs), self._resolved(self.ours, ours)
        shown = f"`{at}`" if at else "the body"
        if not _types(theirs) <= _types(ours) or not set(ours.get("required", ())) <= set(theirs.get("required", ())):
            self.faults.append(f"{shown} has another type or requires more")
        if "enum" in theirs and not set(theirs["enum"]) <= set(ours.get("enum", theirs["enum"])):
            self.faults.append(f"{shown} lacks a value of the appendix")
        if more := sorted(set(ours.get("enum", ())) - set(theirs.get("enum", ours.get("enum", ())))):
            self.additions.append(f"values of {shown}: {', '.join(map(str, more))}")
        if _types(ours) - _types(theirs):
            self.additions.append(f"{shown} may be null")
        for member in sorted(set(theirs.get("required", ())) - set(ours.get("required", ()))):
            self.additions.append(f"`{_under(at, member)}` may be absent")
        self._limits(theirs, ours, shown)
        self._parts(theirs, ours, at, self._request)
        for member in _members(ours).keys() - _members(theirs).keys():
            self.additions.append(f"member `{_under(at, member)}` of a request")

    def _form(self, theirs: Mapping[str, Any], ours: Mapping[str, Any], at: str) -> Mapping[str, Any]:
        """Return that form of ours which has the name of theirs, and list the others."""
        forms = {each.get("$ref"): each for each in ours.get("oneOf", ())}
        if theirs.get("$ref") not in forms:
            return ours
        for name in sorted(forms.keys() - {theirs["$ref"]}):
            self.additions.append(f"`{at}` may be a `{name.rpartition('/')[2]}`")
        return forms[theirs["$ref"]]

    def _limits(self, theirs: Mapping[str, Any], ours: Mapping[str, Any], shown: str) -> None:
        words = [_WORDS[key].format(ours[key]) for key in _WORDS if key in ours and key not in theirs]
        words = [word.replace(" 1 characters", " 1 character").replace(" 1 items", " 1 item") for word in words]
        words += [f"not `{one}`" for one in ours.get("not", {}).get("enum", ())]
        words += ["a `pattern`"] if "pattern" in ours else []
        words += ["no unknown members"] if ours.get("additionalProperties") is False else []
        words += ["only names of its `propertyNames`"] if "propertyNames" in ours else []
        if words:
            self.limits.append(f"{shown}: {'; '.join(words)}")
        unknown = ours.keys() - theirs.keys() - _SILENT - _WORDS.keys() - {"not", "pattern", "propertyNames"}
        if unknown or theirs.get("format", ours.get("format")) != ours.get("format"):
            self.faults.append(f"{shown} has {sorted(unknown)} or another format")

    def _answer(self, theirs: Mapping[str, Any], ours: Mapping[str, Any], at: str) -> None:
        """Compare the schema of a part of an answer: whatever ours describes, theirs must admit."""
        theirs, ours = self._resolved(self.theirs, theirs), self._resolved(self.ours, ours)
        narrower = _types(ours) <= _types(theirs) and set(theirs.get("required", ())) <= set(ours.get("required", ()))
        if not narrower or ("enum" in theirs and not set(ours.get("enum", ())) <= set(theirs["enum"])):
            self.faults.append(f"{at} admits what the appendix does not")
        if "format" in theirs and theirs["format"] != ours.get("format"):
            self.faults.append(f"{at} has another format")
        self._parts(theirs, ours, at, self._answer)
        for member in sorted(_members(ours).keys() - _members(theirs).keys()):
            line = f"member `{_under(at, member)}` of an answer"
            self.additions += [] if line in self.additions else [line]

    def _parts(self, theirs: Mapping[str, Any], ours: Mapping[str, Any], at: str, compare: Any) -> None:
        for member, schema in _members(theirs).items():
            if member in _members(ours):
                compare(schema, _members(ours)[member], at=_under(at, member))
            else:
                self.faults.append(f"`{_under(at, member)}` is missing")
        for part, mark in (("items", "[]"), ("additionalProperties", ".*")):
            if isinstance(theirs.get(part), dict):
                compare(theirs[part], ours[part], at=f"{at}{mark}")

    @staticmethod
    def _resolved(document: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
        while "$ref" in found:
            target: Any = document
            for step in found["$ref"].removeprefix("#/").split("/"):
                target = target[step]
            found = target
        return found


def _operations(document: Mapping[str, Any]) -> dict[str, tuple[str, str, Mapping[str, Any]]]:
    return {
        item[method]["operationId"]: (path, method, item[method])
        for path, item in document["paths"].items()
        for method in METHODS
        if method in item
    }


def _members(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema.get("properties", {})
    return found


def _types(schema: Mapping[str, Any]) -> set[str]:
    kind = schema.get("type", ())
    return {kind} if isinstance(kind, str) else set(kind)


def _under(at: str, member: str) -> str:
    return f"{at}.{member}" if at else member


def found() -> Differences:
    """Return the differences of docs/openapi.yaml from the appendix."""
    return Differences(load(APPENDIX), load(ROOT / "docs" / "openapi.yaml")).find()


def page() -> str:
    """Return docs/extensions.md."""
    return "".join(_lines(found()))


def _lines(differences: Differences) -> Iterator[str]:
    yield _INTRODUCTION
    yield _KEYS
    yield "\n## Additions\n\n"
    yield from (f"- {line}\n" for line in _joined(sorted(differences.additions)))
    yield (
        "\n## Limits\n\nA request that exceeds a limit gets 400. A body above 4 MB gets 413.\n\n"
        "| limit | members |\n|---|---|\n"
    )
    named: dict[str, list[str]] = {}
    for line in differences.limits:
        member, _, limit = line.partition(": ")
        named.setdefault(limit, []).append(member)
    yield from (f"| {limit} | {', '.join(members)} |\n" for limit, members in named.items())


def _joined(additions: Sequence[str]) -> Iterator[str]:
    """Join the lines about the members of one object, and those of operations."""
    lines_of_operations = [line for line in additions if _OPERATION.match(line)]
    others = [line for line in additions if not _OPERATION.match(line)]
    if operations := [line.partition(": ")[2].strip("`") for line in lines_of_operations]:
        by_path = sorted(operations, key=lambda operation: operation.split()[::-1])
        yield f"operations: {', '.join(f'`{operation}`' for operation in by_path)}"
    for (before, after), lines in groupby(others, key=_around_the_member):
        names = ", ".join(f"`{line.removeprefix(before).removesuffix(after)}`" for line in lines) if after else ""
        of = before.replace("member", "members of").removesuffix(".")
        yield f"{of}`: {names}" if after else before


def _around_the_member(line: str) -> tuple[str, str]:
    found = re.fullmatch(r"(member `[^`]*\.)[^.`]+(` of an? \w+)", line)
    return (found[1], found[2]) if found else (line, "")


def files() -> dict[Path, str]:
    """Return the page as it is made."""
    return {PAGE: page()}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
