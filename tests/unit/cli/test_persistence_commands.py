import json
from importlib.metadata import EntryPoint

import pytest
from typer.testing import CliRunner

from delegation.cli.main import build
from polaris_persistence import commands
from polaris_persistence.backends.base import Locator, ObjectKey
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.catalogs.realms import Realms

TABLES = ("--objects-table", "o", "--references-table", "r")


@pytest.fixture
def backend(monkeypatch):
    backend = MemoryBackend()
    monkeypatch.setattr(commands, "open_backend", lambda objects, references, endpoint: backend)
    return backend


@pytest.fixture
def realms(backend) -> Realms:
    """The realms `one` and `two`, made by a commit each."""
    realms = PersistenceProcess(backend).realms()
    for name in ("one", "two"):
        realms.create(name, {})
    return realms


@pytest.fixture
def run(backend):
    def run(*words, given=None):
        app = build([EntryPoint("persistence", "polaris_persistence.commands:app", "delegation.commands")])
        result = CliRunner().invoke(app, ["persistence", "refs", *words, *TABLES], input=given)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def heads(run):
    [one] = json.loads(run("list", "--realm", "", "--json").stdout)["references"]
    return one["recent_heads"]


def test_list_shows_references_and_which_heads_are_complete(run, realms, backend):
    newest, before = heads(run)
    assert [newest["current"], before["current"]] == [True, False]
    assert [newest["problem"], before["problem"]] == [None, None]
    backend.delete_many([Locator(ObjectKey("", "", "catalog-head", newest["id"]))])
    text = run("list").stdout
    assert str(before["id"]) in text
    assert "no commit" in text
    assert heads(run)[0]["problem"]


def test_empty_store_has_no_references(run):
    assert "No references." in run("list").stdout


def test_reset_asks_before_it_moves_the_reference(run, realms):
    newest, before = heads(run)
    refused = run("reset", "", "", "realms", str(before["id"]), given="n\n")
    assert refused.exit_code == 1
    assert heads(run)[0]["id"] == newest["id"]
    assert run("reset", "", "", "realms", str(before["id"]), given="y\n").exit_code == 0
    assert [key.elements() for key, _ in realms.page(limit=9).entities] == [("one",)]
    again = run("reset", "", "", "realms", str(newest["id"]), "--yes", "--json")
    assert json.loads(again.stdout)["head"] == newest["id"]
    assert len(realms.page(limit=9).entities) == 2


def test_reset_to_an_incomplete_head_is_refused_with_a_next_step(run, realms, backend):
    newest, before = heads(run)
    backend.delete_many([Locator(ObjectKey("", "", "catalog-head", before["id"]))])
    result = run("reset", "", "", "realms", str(before["id"]), "--yes")
    assert result.exit_code == 1
    assert str(before["id"]) in result.stderr
    assert "refs list" in result.stderr
    assert run("reset", "", "", "realms", "77", "--yes").exit_code == 1
    assert run("reset", "", "", "nothing", "77", "--yes").exit_code == 1
    forced = run("reset", "", "", "realms", str(before["id"]), "--yes", "--even-if-incomplete")
    assert forced.exit_code == 0
    assert heads(run)[0]["id"] == before["id"]
    assert newest["id"] in [one["id"] for one in heads(run)]


def test_a_realm_is_given_by_its_name_or_by_its_space(run, realms):
    space = realms.get("one").space
    for given in ("one", space):
        [found] = json.loads(run("list", "--realm", given, "--json").stdout)["references"]
        assert (found["realm"], found["name"]) == (space, "catalogs")
    realms.create_catalog("one", "a", {})
    realms.create_catalog("one", "b", {})
    [found] = [
        one for one in json.loads(run("list", "--realm", "one", "--json").stdout)["references"] if one["recent_heads"]
    ]
    before = found["recent_heads"][1]["id"]
    assert run("reset", "one", "", "catalogs", str(before), "--yes").exit_code == 0
    assert [key.elements() for key, _ in realms.catalogs("one").page(limit=9).entities] == [("a",)]
