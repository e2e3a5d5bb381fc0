"""Shortcuts past slow places of moto; what it answers stays the same.

moto looks up each of the ten members of a DynamoDB attribute value under several names, which takes a third of a call's
time. For every request it lists the methods of a class, and its server its own source folders.
"""

import functools
from typing import Any

from moto import backends
from moto.core import responses
from moto.core.serialize import BaseJSONSerializer

STRUCTURE = "_serialize_type_structure"
"""moto's private method, of every serializer of JSON, that writes a structure."""
# Untyped, because the code calls private methods of moto and replaces them.
_SERIALIZER: Any = BaseJSONSerializer
_BACKENDS: Any = backends
_RESPONSES: Any = responses
_PLAIN = {"S": str, "N": str, "BOOL": bool, "NULL": bool}

"""Types of attribute values that are on the wire as moto keeps them."""

write_any_structure = getattr(_SERIALIZER, STRUCTURE)
list_modules = backends.list_of_moto_modules
_list_methods = _RESPONSES.method_names_from_class


def take_shortcuts() -> None:
    """Have moto, in this process, copy plain attribute values and remember the names of its services and methods."""
    setattr(_SERIALIZER, STRUCTURE, _write_structure)
    _BACKENDS.list_of_moto_modules = functools.cache(lambda: tuple(list_modules()))
    _RESPONSES.method_names_from_class = functools.cache(_list_methods)


def _write_structure(serializer: Any, serialized: dict[str, Any], value: Any, shape: Any, key: str) -> None:
    if shape.name != "AttributeValue" or type(value) is not dict:
        write_any_structure(serializer, serialized, value, shape, key)
        return
    written = serialized[serializer.get_serialized_name(shape, key)] = {}
    for kind, inner in value.items():
        if type(inner) is _PLAIN.get(kind):
            written[kind] = inner
        else:
            serializer._serialize(written, inner, shape.members[kind], kind)  # noqa: SLF001
