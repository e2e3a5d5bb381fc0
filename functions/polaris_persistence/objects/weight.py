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
        one = pending.pop()
        if isinstance(one, BaseModel):
            total += sys.getsizeof(one)
            fields = one.__dict__
            total += sys.getsizeof(fields) + sys.getsizeof(one.__pydantic_fields_set__)
            # The names of fields belong to the class.
            pending += fields.values()
            pending += [part for part in (one.__pydantic_extra__, one.__pydantic_private__) if part]
        elif isinstance(one, dict):
            total += sys.getsizeof(one)
            pending += one.keys()
            pending += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            total += sys.getsizeof(one)
            pending += one
        elif one is None or isinstance(one, bool):
            continue
        elif hasattr(one, "held_bytes"):
            total += one.held_bytes()
        elif not isinstance(one, int) or not _SMALLEST_INT <= one <= _LARGEST_INT:
            total += sys.getsizeof(one)
    return total
