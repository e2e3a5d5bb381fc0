"""Which data files may have rows that match a request's filter, by the bounds of their columns and their partition.

Iceberg decides again when it runs. A part of a filter that is not understood here (a function, arithmetic, two columns)
excludes no file, so an estimate is never too low.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import partial
from itertools import accumulate
from typing import Any, Final, Self

from delegation.iceberg.avro.entries import ColumnStats, PartitionValues
from delegation.rewrites.bounds import Column, Columns, ColumnState, column_states
from delegation.rewrites.filters import identity_sources
from delegation.rewrites.predicates import Token, tokens_of

_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "=", "<=>": "="}
_NEGATED: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_EPOCH_DAY: Final = date(1970, 1, 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ZONES: Final = timedelta(hours=14)
"""A timestamp without a zone is read in the session's zone, and so is a column without one."""
_INTEGER_SUFFIXES: Final = re.compile("(?i)(bd|[lsydf])$")
Range = tuple[Any, Any]
"""The lowest and the highest value that a literal may have."""


States = Mapping[int, ColumnState]
Test = Callable[[States], bool]


def _any_file(_states: States) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class FileFilter:
    """Decides about files by `test`. `ids` are the columns that it needs. Without a filter every file matches."""

    ids: frozenset[int] = frozenset()
    columns: Mapping[int, Column] = field(default_factory=dict)
    sources: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    test: Test = _any_file

    @classmethod
    def of(cls, text: str | None, document: Mapping[str, Any]) -> Self:
        if text is None:
            return cls()
        reader = _Reader(Columns.of(document))
        test = reader.read(list(tokens_of(text)), is_negated=False)
        return cls(frozenset(reader.ids), reader.columns.by_id, identity_sources(document), test)

    def may_match(self, spec_id: int, partition: PartitionValues, stats: Mapping[int, ColumnStats]) -> bool:
        """Return whether a file may have matching rows."""
        if not self.ids:
            return self.test({})
        states = column_states(stats, self.columns, self.ids)
        sources = self.sources.get(spec_id, {})
        for field_id, value in partition:
            source = sources.get(field_id)
            if source in states:
                states[source] = _of_partition(self.columns[source], value, states[source])
        return self.test(states)


EVERY_FILE: Final = FileFilter()
"""The filter of a request without one."""


def _of_partition(column: Column, value: Any, otherwise: ColumnState) -> ColumnState:
    """Return the state of a column that has one value in the whole file, given by the partition."""
    if value is None:
        return ColumnState(None, None, is_all_null=True, has_no_null=False)
    if column.kind == "decimal" and isinstance(value, bytes):
        value = int.from_bytes(value, signed=True)
    elif isinstance(value, str):
        value = value.encode()
    elif column.kind == "uuid":
        return otherwise
    return ColumnState(value, value, is_all_null=False, has_no_null=True)


@dataclass(slots=True)
class _Reader:
    """Reads a predicate of Spark SQL, as far as it decides about files."""

    columns: Columns
    ids: set[int] = field(default_factory=set)

    def read(self, tokens: Sequence[Token], *, is_negated: bool) -> Test:
        tokens = _without_parentheses(tokens)
        for word in ("or", "and"):
            parts = list(_split(tokens, word))
            if len(parts) > 1:
                tests = [self.read(part, is_negated=is_negated) for part in parts]
                combine = any if (word == "or") is not is_negated else all
                return partial(_combined, combine, tests)
        if tokens and tokens[0].word == "not":
            return self.read(tokens[1:], is_negated=not is_negated)
        return self._leaf(tokens, is_negated=is_negated)

    def _leaf(self, tokens: Sequence[Token], *, is_negated: bool) -> Test:
        if [token.word for token in tokens] in (["true"], ["false"]):
            is_true = (tokens[0].word == "true") is not is_negated
            return lambda _states: is_true
        for at, token in enumerate(tokens):
            if token.text in _FLIPPED:
                left, right = tokens[:at], tokens[at + 1 :]
                column = self._column(left)
                if column is not None:
                    return self._compared(column, _FLIPPED[_FLIPPED[token.text]], right, is_negated=is_negated)
                column = self._column(right)
                if column is not None:
                    return self._compared(column, _FLIPPED[token.text], left, is_negated=is_negated)
                return _any_file
            if token.word in ("is", "in", "between", "like", "not"):
                column = self._column(tokens[:at])
                return _any_file if column is None else self._worded(column, tokens[at:], is_negated=is_negated)
        return _any_file

    def _compared(self, field_id: int, operator: str, tokens: Sequence[Token], *, is_negated: bool) -> Test:
        literal = _literal(self.columns.by_id[field_id], tokens)
        if is_negated and operator == "=":
            return _any_file
        operator = _NEGATED[operator] if is_negated else operator
        return _any_file if literal is None else self._noted(field_id, _within(operator, [literal]))

    def _worded(self, field_id: int, tokens: Sequence[Token], *, is_negated: bool) -> Test:
        column, words = self.columns.by_id[field_id], [token.word for token in tokens]
        if words in (["is", "null"], ["is", "not", "null"]):
            wants_null = (len(words) == 2) is not is_negated
            return self._noted(field_id, lambda state: not (state.has_no_null if wants_null else state.is_all_null))
        if words[0] == "not":
            return self._worded(field_id, tokens[1:], is_negated=not is_negated) if len(tokens) > 1 else _any_file
        literals = _literals(column, tokens)
        if words[0] == "is" or not literals:
            return _any_file
        if words[0] == "between" and len(literals) == 2:
            return self._noted(field_id, _outside(*literals) if is_negated else _inside(*literals))
        if is_negated:
            return _any_file
        if words[0] == "like":
            return self._noted(field_id, _like(literals[0][0])) if column.kind == "string" else _any_file
        return self._noted(field_id, _within("=", literals))

    def _noted(self, field_id: int, test: Callable[[ColumnState], bool]) -> Test:
        self.ids.add(field_id)
        return lambda states: test(states[field_id])

    def _column(self, tokens: Sequence[Token]) -> int | None:
        """Return the id of the table's column that the tokens name, None if they name none."""
        if not all(token.kind in ("word", "column") or token.text == "." for token in tokens):
            return None
        return self.columns.names.get("".join(token.text.strip("`") for token in tokens).lower())


def _combined(combine: Callable[[Iterable[bool]], bool], tests: Sequence[Test], states: States) -> bool:
    return combine(test(states) for test in tests)


def _within(operator: str, literals: Sequence[Range]) -> Callable[[ColumnState], bool]:
    """Return a test of whether a file may have a value for which the operator holds with one of the literals."""

    def test(state: ColumnState) -> bool:
        if state.is_all_null:
            return False
        return any(_compares(operator, state, least, most) for least, most in literals)

    return test


def _compares(operator: str, state: ColumnState, least: Any, most: Any) -> bool:
    lowest, highest = state.lowest, state.highest
    if operator in ("<", "<=", "=") and lowest is not None and (lowest > most or (operator == "<" and lowest == most)):
        return False
    if operator in (">", ">=", "=") and highest is not None:
        return not (highest < least or (operator == ">" and highest == least))
    return True


def _inside(least: Range, most: Range) -> Callable[[ColumnState], bool]:
    above, below = _within(">=", [least]), _within("<=", [most])
    return lambda state: above(state) and below(state)


def _outside(least: Range, most: Range) -> Callable[[ColumnState], bool]:
    below, above = _within("<", [least]), _within(">", [most])
    return lambda state: below(state) or above(state)


def _like(pattern: bytes) -> Callable[[ColumnState], bool]:
    prefix = re.split(rb"[%_\\]", pattern)[0]

    def test(state: ColumnState) -> bool:
        if state.is_all_null:
            return False
        if state.lowest is not None and state.lowest[: len(prefix)] > prefix:
            return False
        return state.highest is None or state.highest[: len(prefix)] >= prefix[: len(state.highest)]

    return test


def _without_parentheses(tokens: Sequence[Token]) -> Sequence[Token]:
    """Remove parentheses around the whole sequence."""
    while len(tokens) > 1 and tokens[0].text == "(":
        if 0 in list(_depths(tokens))[:-1]:
            return tokens
        tokens = tokens[1:-1]
    return tokens


def _depths(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the nesting depth of parentheses after each token."""
    return accumulate((token.text == "(") - (token.text == ")") for token in tokens)


def _split(tokens: Sequence[Token], word: str) -> Iterator[Sequence[Token]]:
    """Yield the parts between these words outside parentheses. The first AND after a BETWEEN does not separate."""
    begin, is_between = 0, False
    for at, (token, depth) in enumerate(zip(tokens, _depths(tokens), strict=True)):
        if depth == 0 and token.word == "between":
            is_between = True
        elif depth == 0 and token.word == "and" and is_between:
            is_between = False
        elif depth == 0 and token.word == word:
            yield tokens[begin:at]
            begin = at + 1
    yield tokens[begin:]


def _literals(column: Column, tokens: Sequence[Token]) -> list[Range] | None:
    """Return the literals of IN, BETWEEN or LIKE, None if one is not a literal."""
    word, rest = tokens[0].word, list(tokens[1:])
    if word == "in":
        if len(rest) < 2 or rest[0].text != "(" or rest[-1].text != ")":
            return None
        rest = rest[1:-1]
    separator = {"in": ",", "between": "and"}.get(word)
    parts: list[list[Token]] = [[]]
    for token in rest:
        if separator in (token.text, token.word):
            parts.append([])
        else:
            parts[-1].append(token)
    literals = [_literal(column, part) for part in parts]
    return None if None in literals else [literal for literal in literals if literal is not None]


def _literal(column: Column, tokens: Sequence[Token]) -> Range | None:
    """Return a literal in the column's type, None for anything else."""
    convert = _LITERALS.get(column.kind)
    if convert is None or not tokens:
        return None
    word = tokens[0].word if len(tokens) == 2 else ""
    value = tokens[-1]
    try:
        if value.kind == "number" and len(tokens) == (2 if tokens[0].text == "-" else 1):
            number = Decimal(_INTEGER_SUFFIXES.sub("", value.text))
            return convert(column, number.copy_negate() if len(tokens) == 2 else number, "")
        if value.kind == "string" and (len(tokens) == 1 or word in ("date", "timestamp")):
            return convert(column, value.text[1:-1], word)
        if len(tokens) == 1 and value.word in ("true", "false"):
            return convert(column, value.word == "true", "")
    except (ValueError, OverflowError, InvalidOperation):
        return None
    return None


def _as_number(_column: Column, value: Any, _word: str) -> Range | None:
    return (value, value) if isinstance(value, Decimal) else None


def _as_double(_column: Column, value: Any, _word: str) -> Range | None:
    return (float(value), float(value)) if isinstance(value, Decimal) else None


def _as_unscaled(column: Column, value: Any, _word: str) -> Range | None:
    if not isinstance(value, Decimal):
        return None
    # Arithmetic rounds to 28 digits by default. A Spark literal has up to 38.
    unscaled = value.scaleb(int(column.type.partition(",")[2].strip(" )")), Context(prec=80))
    return unscaled, unscaled


def _as_text(_column: Column, value: Any, word: str) -> Range | None:
    return (value.encode(), value.encode()) if isinstance(value, str) and not word else None


def _as_boolean(_column: Column, value: Any, _word: str) -> Range | None:
    return (value, value) if isinstance(value, bool) else None


def _as_date(_column: Column, value: Any, word: str) -> Range | None:
    if not isinstance(value, str) or word == "timestamp":
        return None
    days = (date.fromisoformat(value.strip()) - _EPOCH_DAY).days
    return days, days


def _as_timestamp(_column: Column, value: Any, _word: str) -> Range | None:
    if not isinstance(value, str):
        return None
    moment, microsecond = datetime.fromisoformat(value.strip()), timedelta(microseconds=1)
    since = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since - _ZONES) // microsecond, (since + _ZONES) // microsecond


_LITERALS: Final[Mapping[str, Callable[[Column, Any, str], Range | None]]] = {
    **dict.fromkeys(("int", "long"), _as_number),
    # Not float: rounding may make a literal greater than it was.
    "double": _as_double,
    "decimal": _as_unscaled,
    "string": _as_text,
    "boolean": _as_boolean,
    "date": _as_date,
    **dict.fromkeys(("timestamp", "timestamptz"), _as_timestamp),
}
