"""The predicates allowed as a request's filter. Spark SQL reads the text in a process with the service's rights, and
evaluates calls of Java methods in subqueries while it optimizes. So only columns, literals and operators pass."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""\s+
    | (?P<string>'[^'\\]*'|"[^"\\]*")
    | (?P<column>`[^`]*`)
    | (?P<number>[0-9]+(\.[0-9]+)?([Ee][+-]?[0-9]+)?[A-Za-z]{0,2}(?![A-Za-z0-9_]))
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<open>\()
    | (?P<operator><=>|<=|>=|<>|!=|==|[=<>+*%!,.)]|-(?!-)|/(?!\*))
    """,
    re.VERBOSE,
)
_BEFORE_PARENTHESES: Final = frozenset({"and", "between", "in", "like", "not", "or"})
FUNCTIONS: Final = ("cast", "current_date", "current_timestamp", "date_add", "date_sub", "to_date", "to_timestamp")
_OF_QUERIES: Final = frozenset({"from", "map", "reduce", "select", "table", "values", "with"})
_LONGEST_SHOWN: Final = 20


class Token(NamedTuple):
    """A part of a predicate. `word` is a word in lower case, empty for anything else."""

    kind: str
    text: str

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind == "word" else ""


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the parts, without blanks, of a predicate that `why_refused` accepts."""
    for token in _TOKEN.finditer(text):
        if token.lastgroup is not None:
            yield Token(token.lastgroup, token[0])


def why_refused(text: str) -> str | None:
    """Return what makes a predicate unsafe as a filter, None if Spark may read it."""
    if "${" in text:
        return "`${`, which Spark replaces"
    at, before = 0, ""
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            return f"{text[at : at + _LONGEST_SHOWN]!r}"
        kind, shown = token.lastgroup, token[0]
        if kind == "word" and shown.lower() in _OF_QUERIES:
            return f"the SQL keyword {shown} (put a column of this name in backticks)"
        if kind == "open" and before not in (*_BEFORE_PARENTHESES, *FUNCTIONS, ""):
            return f"a call of {before} (the allowed functions are {', '.join(FUNCTIONS)})"
        if kind is not None:
            before = {"word": shown.lower(), "column": shown, "string": shown}.get(kind, "")
        at = token.end()
    return None
