"""Finds the policy statements in a template that allow a wildcard of actions on every resource."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Wildcard:
    """An Allow statement that is too wide: its path in the template, and its wildcard actions."""

    path: str
    actions: tuple[str, ...]


def wildcards(template: Mapping[str, Any]) -> tuple[Wildcard, ...]:
    """Return every Allow of an action with `*` or `?`, or of NotAction, on the resource `*` or on NotResource.

    It searches the policies of all resources (roles, keys, buckets, queues), also those written as JSON text.
    """
    return tuple(_search(template, ""))


def _search(node: object, path: str) -> Iterator[Wildcard]:
    if isinstance(node, Mapping):
        everywhere = "NotResource" in node or "*" in _texts(node.get("Resource"))
        if node.get("Effect") == "Allow" and everywhere and (actions := _wide_actions(node)):
            yield Wildcard(path, actions)
        for key, value in node.items():
            yield from _search(value, f"{path}/{key}")
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _search(value, f"{path}/{index}")
    elif isinstance(node, str) and node.lstrip().startswith("{"):
        try:
            parsed = json.loads(node)
        except ValueError:
            return
        yield from _search(parsed, f"{path}/(json)")


def _wide_actions(statement: Mapping[str, Any]) -> tuple[str, ...]:
    if "NotAction" in statement:
        return ("NotAction",)
    return tuple(action for action in _texts(statement.get("Action")) if "*" in action or "?" in action)


def _texts(value: object) -> list[str]:
    """Return the strings in a value: a string, a list, or an intrinsic function; Join and Sub yield their text."""
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    match value:
        case str():
            return [value]
        case {"Fn::Join": [str(separator), [*parts]]}:
            return [separator.join(part if isinstance(part, str) else "${}" for part in parts)]
        case {"Fn::Sub": str(text)} | {"Fn::Sub": [str(text), *_]}:
            return [text]
        case {"Fn::If": [_, *branches]}:
            return _texts(branches)
        case _:
            return []
