"""`delegation local`: its summary of the parts, and the tables that it writes for a first purge."""

from contextlib import suppress
from types import SimpleNamespace

import pytest
import typer
from rich.console import Console

from delegation.cli.connection import Connection
from delegation.polaris.answers import NoSuchTable, TableMetadataMissing
from infra.local import command
from infra.local.demo import tables as sample
from infra.local.demo.tables import AgesFixed

PARTS = [
    ("Delegation service", "https://127.0.0.1:37445/delegation-service/api", "client certificate and token required"),
    ("Other AWS services", "http://127.0.0.1:43441", f"what the note says is {'long and ' * 9}whole"),
]


@pytest.mark.parametrize("width", [80, 160])
def test_an_address_is_never_broken_so_that_it_can_be_copied(width: int) -> None:
    console = Console(width=width)
    # Of the class `Part` the fields alone: its module loads Spark.
    parts = [SimpleNamespace(name=name, where=where, note=note) for name, where, note in PARTS]
    with console.capture() as capture:
        console.print(command.parts_table(parts, width))
    text = capture.get()
    for part in parts:
        assert part.name in text
        assert part.where in text
        assert set(part.note.split()) <= set(text.split())
    assert max(map(len, text.splitlines())) <= width


class FakeCatalog:
    """Polaris, which has `events`, and an entry of `orders` whose files were purged."""

    warehouse = "lake"

    def __init__(self) -> None:
        self.tables = {"events": True, "orders": False}
        self.namespaces: list[str] = []

    def create_namespace_if_not_exists(self, name: str) -> None:
        self.namespaces.append(name)

    def load_table(self, table) -> None:
        if table.name not in self.tables:
            raise NoSuchTable(str(table))
        if not self.tables[table.name]:
            raise TableMetadataMissing(str(table))

    def drop_table(self, table) -> None:
        del self.tables[table.name]

    def create(self, _catalog, recipe, _progress) -> None:
        assert recipe.name not in self.tables
        self.tables[recipe.name] = True

    def state_of(self, _catalog, _bucket, name) -> sample.SampleState:
        assert self.tables[name], "read before it was written"
        return sample.SampleState(rows=1000 + len(name), snapshots=4, objects=42, checksum="8c32aa3e021b")


def test_tables_are_written_unless_they_exist_and_again_after_a_purge(monkeypatch, capsys) -> None:
    catalog = FakeCatalog()
    monkeypatch.setattr(Connection, "stack", lambda _self: catalog)
    monkeypatch.setattr(Connection, "catalog", lambda _self: catalog)
    monkeypatch.setattr(sample, "connect", lambda _stack: catalog)
    monkeypatch.setattr(sample, "create", catalog.create)
    monkeypatch.setattr(sample, "Bucket", lambda _stack: catalog)
    monkeypatch.setattr(sample, "state_of", catalog.state_of)
    with suppress(SystemExit):
        command.app(["tables"])
    assert catalog.namespaces == ["shop"]
    assert catalog.tables == {"events": True, "orders": True, "customers": True}
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "table rows snapshots objects rows' checksum",
        "lake.shop.orders written 1,006 4 42 8c32aa3e021b",
        "lake.shop.events existed 1,006 4 42 8c32aa3e021b",
        "lake.shop.customers written 1,009 4 42 8c32aa3e021b",
        "Purge a table: delegation submit lake.shop.orders --wait",
    ]


def test_nothing_is_planted_where_objects_cannot_be_made_older(monkeypatch) -> None:
    written: list[str] = []
    stack = SimpleNamespace(aws_endpoint="http://127.0.0.1:1")
    monkeypatch.setattr(Connection, "stack", lambda _self: stack)
    monkeypatch.setattr(sample, "connect", lambda _stack: written.append("connected"))
    with pytest.raises(AgesFixed, match="cannot be reached"):
        command.app(["plant-orphans", "lake.shop.orders"], standalone_mode=False)
    assert written == []


@pytest.mark.parametrize("age", ["4", "-1d", "0s", "soon"])
def test_an_age_is_a_duration(age) -> None:
    with pytest.raises(typer.BadParameter, match=r"duration|positive"):
        command.app(["plant-orphans", "lake.shop.orders", f"--age={age}"], standalone_mode=False)
