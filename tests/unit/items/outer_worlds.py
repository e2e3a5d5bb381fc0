"""For each loop of the commands and of the catalog's client a world as in `worlds`."""

import json
from contextlib import suppress
from functools import partialmethod
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from delegation.cli.catalog import simulation as simulating
from delegation.cli.catalog.policies import app as policies
from delegation.cli.connection import Connection
from delegation.cli.tombstones.cascade import Cascade, found_in
from delegation.cli.tombstones.receipts import ReceiptFile
from delegation.notifications.queue import resent
from delegation.polaris.model import GenericTable
from delegation.polaris.policies import PolicyClient, PolicyIdentifier, StoredPolicy
from delegation.removal.orphans import released
from delegation.removal.orphans.quarantine import UntagRun
from delegation.removal.orphans.released import tagged_at
from delegation.storage.memory import MemoryObjectStore
from delegation.tasks.stores.memory import MemoryNotificationStore, MemoryTaskStore
from delegation.upkeep.rules.limits import UpkeepSettings
from tests.kit.tasks.builders import NOW, Clock
from tests.unit.cli.callbacks.test_callbacks import dead
from tests.unit.cli.tombstones.test_drop_namespace import MemoryCatalog
from tests.unit.items.worlds import ORDER, Failing, Served, made, planted, world
from tests.unit.polaris.scripted import Server, raw_json
from tests.unit.polaris.test_client import client_of
from tests.unit.removal.orphans.quarantine.test_released import tagged
from tests.unit.removal.orphans.test_restoring import swept
from tests.unit.upkeep.execution.catalogs import ALLOWED, WEEK, UpkeepWorld
from tests.unit.upkeep.execution.catalogs import NOW as UPKEEP_NOW

NAMES = {f"t{number}": kind for number, kind in enumerate(ORDER)}
GOOD = {name for name, kind in NAMES.items() if kind == "g"}


@world("polaris.generic-tables")
def generic_tables_that_cannot_be_loaded(failing: Failing) -> Served:
    """The others are known before the error."""
    server = Server()
    folder = "/api/catalog/polaris/v1/lake/namespaces/ns/generic-tables"
    server.answer("GET", folder, raw_json(json.dumps({"identifiers": [{"name": name} for name in NAMES]})))
    for name in NAMES:
        server.answer("GET", f"{folder}/{name}", raw_json(json.dumps({"table": {"base-location": f"s3://b/{name}"}})))
    client, found = client_of(server, Clock()), list[GenericTable]()

    def is_bad(path: str, *_: Any, **__: Any) -> bool:
        return NAMES.get(path.rpartition("/")[2]) == "b"

    with planted(client.requests, "get", is_bad, failing), suppress(type(failing())):
        found.extend(client.generic_tables("lake", ("ns",)))
    return GOOD, {one.identifier.name for one in found if one.base_location}


@world("notifications.resent")
def dead_letters_that_cannot_be_changed(failing: Failing) -> Served:
    tasks = MemoryTaskStore()
    found = made(lambda _number: dead(tasks))
    store = MemoryNotificationStore(tasks)
    letters = [one for one in tasks.owed.values() if one.is_dead]
    with planted(store, "revise_notification", lambda one, _after: one.task_id in found["b"], failing):
        return found["g"], {one.item.task_id for one in resent(store, letters, NOW) if one.result}


@world("policies.listed")
def policies_that_cannot_be_read(failing: Failing) -> Served:
    def load(_client: Any, one: PolicyIdentifier) -> StoredPolicy:
        if NAMES[one.name] == "b":
            raise failing()
        return StoredPolicy("system.snapshot-expiry", one.name, "{}", 0)

    listed = [PolicyIdentifier("lake", ("gov",), name) for name in NAMES]
    with (
        patch.object(Connection, "of", lambda *_: SimpleNamespace(catalog=lambda: SimpleNamespace(requests=None))),
        patch.multiple(PolicyClient, list_policies=lambda *_: listed, load=load),
    ):
        result = CliRunner().invoke(policies, ["list", "lake.gov"])
    error: Any = result.exception
    assert (error.code, error.exit_status) == ("ITEMS_FAILED", 4)
    assert all((f"lake.gov.{name} (" in str(error)) == (name not in GOOD) for name in NAMES)
    return GOOD, {name for name in NAMES if f"lake.gov.{name}" in result.stdout}


@world("policies.simulated")
def tables_whose_policies_cannot_be_read_for_a_simulation(failing: Failing) -> Served:
    here = UpkeepWorld()
    for name in NAMES:
        here.write(name, [30.0, 20.0, 1.0])
    here.policies.attach(WEEK, "ns")
    real = simulating.rule_of

    def rule_of(table: Any, *more: Any) -> Any:
        if NAMES[table.name] == "b":
            raise failing()
        return real(table, *more)

    with patch.object(simulating, "rule_of", rule_of):
        found = simulating.simulated(
            here.healths,
            here.policies,
            "lake",
            limits=ALLOWED,
            settings=UpkeepSettings(),
            now=UPKEEP_NOW,
            days=7,
        )
    assert set(found.unknown) == {f"lake.ns.{name}" for name in NAMES.keys() - GOOD}
    assert found.unreadable
    return GOOD, {one.need.table.name for one in found.simulation.runs}


def below(catalog: MemoryCatalog) -> None:
    catalog.namespaces = {("sales",), *(("sales", name) for name in NAMES)}
    catalog.tables.clear()


@world("cascade.read")
def tables_of_a_namespace_that_cannot_be_read(failing: Failing) -> Served:
    """Each is named, and nothing is dropped."""
    catalog = MemoryCatalog()
    below(catalog)
    for name in NAMES:
        catalog.create(f"lake.sales.{name}")
    with planted(catalog, "load_table", lambda one, **_: NAMES[one.name] == "b", failing):
        found = found_in(catalog, "lake", ("sales",), "k")
    assert {one.name for one in found.tables} == NAMES.keys()
    assert all((one.refused is None) == (one.table_uuid != "") for one in found.tables)
    return GOOD, {one.name for one in found.tables if one.refused is None}


@world("cascade.namespaces")
def empty_namespaces_that_cannot_be_dropped(failing: Failing) -> Served:
    """The namespace above one that stays is not tried; a rerun drops what is left."""
    catalog = MemoryCatalog()
    below(catalog)

    def is_bad(_catalog: str, levels: tuple[str, ...]) -> bool:
        return NAMES.get(levels[-1]) == "b"

    with TemporaryDirectory() as folder:
        file = ReceiptFile(Path(folder) / "r.json", found_in(catalog, "lake", ("sales",), "k"))
        file.begin()
        with planted(catalog, "drop_namespace", is_bad, failing):
            done = Cascade(catalog, pytest.fail).run(file)
        assert ("sales",) in catalog.namespaces
        assert "lake.sales.t0 was not" in str(done.problem)
        gone = {name for name in NAMES if ("sales", name) not in catalog.namespaces}
        resumed = ReceiptFile.opened(file.path)
        assert resumed is not None
        assert Cascade(catalog, pytest.fail).run(resumed).complete
        assert not catalog.namespaces
    return GOOD, gone


@world("orphans.restored")
def deleted_files_whose_versions_cannot_be_read(failing: Failing) -> Served:
    here, _, files, result = swept()
    bad = set(sorted(files)[:2])
    with planted(here.store, "versions", lambda bucket, key: f"s3://{bucket}/{key}" in bad, failing):
        found = here.restore(result)
    assert ({path for path, _ in found.failed}, found.is_complete) == (bad, False)
    served = files & here.lake.uris()
    assert here.restore(result).is_complete
    return files - bad, served


@world("orphans.superseded")
def files_of_earlier_quarantines_of_which_the_store_states_nothing(failing: Failing) -> Served:
    """The record that names one stays, for it may have the tag; those of which all files are gone are left out."""
    here, table, files = tagged()
    table.set(**{"delegation.orphan-files.older-than": "900d"})
    bad = {path.removeprefix("s3://lake/") for path in sorted(files)[:2]}
    [first] = tagged_at(here.plans, "s3://lake/wh/t")
    here.context(table)
    asked: list[str] = []
    untag = partialmethod(unanswered, MemoryObjectStore.untag, bad, failing, asked)
    with patch.object(MemoryObjectStore, "untag", untag), patch.object(released, "_FEW", 3):
        for at in range(6):
            path = here.orphan(f"s3://lake/wh/t/data/old-{at}.parquet")
            here.lake.modified["lake", path.removeprefix("s3://lake/")] = 1
            here.sweep(table)
            for gone in here.tagged() - files:
                del here.lake.objects["lake", gone.removeprefix("s3://lake/")]
    assert asked
    left = tagged_at(here.plans, "s3://lake/wh/t")
    return {"named", "gone"}, ({"named"} if first in left else set()) | ({"gone"} if len(left) <= 5 else set())


def unanswered(
    store: Any, real: Any, bad: set[str], failing: Failing, asked: list[str], *given: Any, **more: Any
) -> Any:
    if given[1].key in bad:
        asked.append(given[1].key)
        raise failing()
    return real(store, *given, **more)


@world("orphans.untagged")
def tagged_files_that_cannot_be_untagged(failing: Failing) -> Served:
    here, table, files = tagged()
    bad = set(sorted(files)[:2])
    here.context(table)
    run = UntagRun(here.store, here.plans, [here.plan().plan_id], "s3://lake/wh/t")
    with planted(here.store, "untag", lambda bucket, one, **_: f"s3://{bucket}/{one.key}" in bad, failing):
        found = run.run()
    assert {path for path, _ in found.failed} == bad
    return files - bad, files - here.tagged()
