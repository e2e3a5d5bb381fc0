"""`delegation compact` and `delegation rewrite-manifests`: what they send, and what they refuse to send."""

import pytest

from tests.unit.cli.conftest import IDENTITY, TABLE, sent
from tests.unit.client.service import TASK_ID, TASKS


@pytest.mark.parametrize(
    ("words", "operation", "properties"),
    [
        (("compact",), "TABLE_COMPACTION", {}),
        (("compact", "--dry-run"), "TABLE_COMPACTION", {"dry-run": "true"}),
        (
            ("compact", "--strategy", "sort", "--sort-order", "day DESC, id", "--min-input-files", "3"),
            "TABLE_COMPACTION",
            {"strategy": "sort", "sort-order": "day DESC, id", "min-input-files": "3"},
        ),
        (
            ("compact", "--filter", "day = DATE '2026-11-01'", "--cold-after", "30m", "--branch", "audit"),
            "TABLE_COMPACTION",
            {"filter": "day = DATE '2026-11-01'", "cold-after": "30m", "branch": "audit"},
        ),
        (("rewrite-manifests", "--spec-id", "0"), "TABLE_REWRITE_MANIFESTS", {"spec-id": "0"}),
    ],
)
def test_it_sends_the_identity_and_the_options_that_were_given(run, accepting, stack, words, operation, properties):
    command, *options = words
    result = run(command, TABLE, *options, "--stack", str(stack))
    assert result.exit_code == 0, result.stderr
    assert TASK_ID in result.stdout
    body = sent(accepting)
    assert body["common_payload"]["operation_type"] == operation
    assert body["operation_parameters"] == {"table_identity": IDENTITY, "properties": properties}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("compact", TABLE, "--strategy", "zorder"), "--strategy"),
        (("compact", TABLE, "--strategy", "z-order"), "--z-order-columns"),
        (("compact", TABLE, "--cold-after", "soon"), "--cold-after"),
        (("compact", TABLE, "--min-input-file", "3"), "--min-input-files"),
        (("compact", TABLE, "--plan", "x"), "--plan"),
        (("compact", "orders"), "CATALOG.NAMESPACE.TABLE"),
        (("rewrite-manifests", TABLE, "--spec", "1"), "--spec-id"),
        (("rewrite-manifests", TABLE, "--min-benefit", "many"), "--min-benefit"),
    ],
)
def test_what_the_service_would_refuse_is_not_sent(run, accepting, stack, words, shown):
    result = run(*words, "--stack", str(stack))
    assert result.exit_code == 2
    assert shown in result.stderr
    assert accepting.asked("POST", TASKS) == []
