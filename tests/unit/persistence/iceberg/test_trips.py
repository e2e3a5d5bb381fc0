"""How many batches, rows and read units it takes to load a table."""

import pytest

from tests.unit.persistence.iceberg.iceberg_fixtures import as_json, document_of, pyiceberg_table
from tests.unit.persistence.iceberg.metered import MeteredTable

LINE_11 = "issue 17, line 11: "


@pytest.mark.xfail(strict=True, reason=LINE_11 + "a table of 1,000 snapshots takes 18 batches and 507 read units")
def test_a_table_of_a_thousand_snapshots_is_loaded_in_three_batches_and_eighty_units() -> None:
    document = document_of(pyiceberg_table(2, 1_000))
    table = MeteredTable(document)
    assert as_json(table.load(table.process()).document()) == as_json(document)
    assert table.backend.batches <= 3
    assert table.backend.units <= 80
    warm = table.process()
    table.load(warm).document()
    table.backend.reset()
    table.load(warm).document()
    assert table.backend.batches == 0
