"""The size of a decoded value in memory, for the weight of its cache entry."""

import sys
from typing import Any

from pydantic import BaseModel

_SMALLEST_INT, _LARGEST_INT = -5, 256
"""Integers that CPython makes once for a process (The Python/C API, Integer Objects)."""


def held_bytes(value: object) -> int:
    """Return the bytes of a value and of everything in it: models, dicts, lists, text, bytes and numbers.

    An object with a method `held_bytes` states its own. What all values of a type share is not counted.
    """
    total = 0
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, BaseModel):
            total += sys.getsizeof(item)
            fields = item.__dict__
            total += sys.getsizeof(fields) + sys.getsizeof(item.__pydantic_fields_set__)
            # The names of fields belong to the class.
            pending += fields.values()
            pending += [part for part in (item.__pydantic_extra__, item.__pydantic_private__) if part]
        elif isinstance(item, dict):
            total += sys.getsizeof(item)
            pending += item.keys()
            pending += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            total += sys.getsizeof(item)
            pending += item
        elif item is None or isinstance(item, bool):
            continue
        elif hasattr(item, "held_bytes"):
            total += item.held_bytes()
        elif not isinstance(item, int) or not _SMALLEST_INT <= item <= _LARGEST_INT:
            total += sys.getsizeof(item)
    return total
