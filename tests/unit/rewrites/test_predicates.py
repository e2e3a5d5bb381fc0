"""Filters of requests: what Spark may read, and what it must never see."""

import pytest

from delegation.rewrites.predicates import why_refused
from delegation.rewrites.terms import CompactionTerms
from delegation.tasks.options import InvalidOption


@pytest.mark.parametrize(
    "text",
    [
        "day = DATE '2026-11-01'",
        "day < date_sub(current_date(), 7) AND region IN ('eu', \"us\")",
        "NOT (a.b >= -1.5e3 OR `select` IS NULL)",
        "name LIKE 'reflect(%' AND note = 'SELECT 1 -- /*'",
        "ts >= CAST('2026-11-01' AS TIMESTAMP) - INTERVAL 7 DAYS",
        "id BETWEEN 5L AND (7 + 1) / 2",
        "x <=> 3 AND y <> 4 AND z != 5 AND `größe` == X'1F'",
    ],
)
def test_columns_literals_and_operators_pass(text: str) -> None:
    assert why_refused(text) is None
    assert CompactionTerms.of({"filter": text}).filter == text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("id IN (SELECT 1 FROM VALUES (1) WHERE reflect('java.lang.System', 'exit', 0) = '')", "SELECT"),
        ("id = (table others)", "table"),
        ("id IN (WITH a AS (VALUES 1) TABLE a)", "WITH"),
        ("reflect('java.lang.System', 'getenv', 'A') = 'b'", "reflect"),
        ("`reflect` ('java.lang.System', 'getenv', 'A') = 'b'", "reflect"),
        ("system.builtin.java_method ('a', 'b') = 'c'", "java_method"),
        ("exists (id)", "exists"),
        ("IDENTIFIER('reflect')('a', 'b') = 'c'", "IDENTIFIER"),
        ("'reflect'('a') = 'c'", "reflect"),
        ("${env:AWS_SECRET_ACCESS_KEY} = 1", "${"),
        ("name = '${system:user.home}'", "${"),
        (r"name = '\' OR reflect(' = '", "'"),
        ("id = 1 /* ' */ OR reflect('a') /* ' */", "/*"),
        ("id = 1 -- '\u00a0 OR", "--"),
        ("id = 1; DROP TABLE a", ";"),
        ("a[0] = 1", "["),
        ("a:b = 1", ":"),
    ],
)
def test_what_spark_would_run_or_replace_is_refused(text: str, named: str) -> None:
    assert named.lower() in (why_refused(text) or "").lower()
    with pytest.raises(InvalidOption) as refused:
        CompactionTerms.of({"filter": text}, accepted=True)
    assert refused.value.name == "filter"
