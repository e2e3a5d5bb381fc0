"""`delegation compact` and `delegation rewrite-manifests`: have the service rewrite a table's files with Spark."""

from delegation.cli.calls import Call, command
from delegation.cli.submit import TableArgument, call_request, parse_table, refused, send
from delegation.rewrites.requests import COMPACTION_FORM, MANIFESTS_FORM
from delegation.rewrites.terms import COMPACTION_OPTIONS, MANIFESTS_OPTIONS, CompactionTerms, ManifestTerms
from delegation.tasks.options import InvalidOption


@command(takes="key wait stack", table=COMPACTION_OPTIONS)
def compact_command(call: Call, table: TableArgument) -> None:
    """Rewrite a table's small data files into larger files with Spark, and apply its deletes.

    The table keeps its rows. The former files stay until their snapshots expire.
    """
    try:
        CompactionTerms.of(call.given)
    except InvalidOption as error:
        raise refused(COMPACTION_OPTIONS, error, error.name) from None
    send(call, COMPACTION_FORM, call_request(call, parse_table(table), call.given))


@command(takes="key wait stack", table=MANIFESTS_OPTIONS)
def rewrite_manifests_command(call: Call, table: TableArgument) -> None:
    """Rewrite a table's manifests, with Spark, so that queries read fewer of them."""
    try:
        ManifestTerms.of(call.given)
    except InvalidOption as error:
        raise refused(MANIFESTS_OPTIONS, error, error.name) from None
    send(call, MANIFESTS_FORM, call_request(call, parse_table(table), call.given))
