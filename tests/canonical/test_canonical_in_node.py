"""A client in another language hashes payloads as the service does: RFC 8785 with the rule for big integers."""

import json

import pytest

from delegation.idempotency.keys import payload_hash
from tests.canonical import __main__ as node
from tests.canonical.cases import generated


def test_payloads_hash_as_node_recorded() -> None:
    """`make canonical ARGS=--record` wrote these with a package of Node."""
    recorded = json.loads(node.RECORDED.read_text(encoding="utf-8"))
    assert len(recorded) > 150
    assert {name: node.here(text)[1] for name, text in generated() if name in recorded} == recorded


@pytest.mark.long
def test_every_payload_has_the_same_canonical_form_and_hash_in_node() -> None:
    try:
        theirs, differ = node.compared()
    except node.NodeUnavailable as error:
        pytest.skip(f"Node or npm's registry is not available: {error}")
    assert differ == []
    assert len([name for name in theirs if name.endswith(".metadata.json")]) > 100
    assert len(theirs) > 1000


def test_the_comparison_notices_another_rule_for_big_integers() -> None:
    recorded = json.loads(node.RECORDED.read_text(encoding="utf-8"))
    texts = dict(generated())
    names = [name for name in recorded if name.startswith("snapshot ids")]
    assert names
    for name in names:
        assert payload_hash(json.loads(texts[name]), rule=1) != recorded[name]
