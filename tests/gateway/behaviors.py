"""pyiceberg's own tests of how catalogs behave, from its source archive, twice.

    python -m tests.gateway.behaviors [--only NAME] [--on states]

They are written for pyiceberg's in-memory and SQL catalogs; here their fixtures are a REST catalog: Iceberg's REST
server, direct and with every request through the gateway, or with `--on states` the stand-in of Polaris in memory and
in the persistence. Every test must have the same outcome on both ways (a few that are about SQL fail on both). Exits
with 1 otherwise, and with 77 if the archive, Java 17 or Maven is missing.
"""

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from infra.local.aws.dynamodb import cache_folder
from infra.local.errors import UnavailableError
from tests.gateway.kit import SKIPPED, WAYS, outcome, report, served

NAME = "test_catalog_behaviors.py"
_FIXTURES = "pytest-lazy-fixtures==1.4.1"
_SECONDS = 1500
_LEAST = {"gateway": 190, "states": 169}
"""Tests that pass on both ways; the others expect what only pyiceberg's own catalogs do."""
# Later definitions in a module replace earlier ones; every test begins with an empty catalog.
_REST = """
import contextlib

from typing import Any

from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchNamespaceError


def _namespaces(catalog: Catalog, parent: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    # The server takes namespaces without a name, which no path of the protocol can address.
    found: list[tuple[str, ...]] = []
    with contextlib.suppress(NoSuchNamespaceError):  # pyiceberg 0.12 encodes a parent's `%` twice
        found = [one for one in catalog.list_namespaces(parent) if all(level.strip() for level in one)]
    return [below for one in found for below in (*_namespaces(catalog, one), one)]


def _emptied_rest_catalog() -> Catalog:
    catalog = load_catalog("rest", type="rest", uri=os.environ["REST_CATALOG_URI"])
    for namespace in _namespaces(catalog):
        # The server takes tables and namespaces below a namespace that does not exist, and lists that one.
        with contextlib.suppress(NoSuchNamespaceError):
            for identifier in catalog.list_tables(namespace):
                catalog.drop_table(identifier)
            catalog.drop_namespace(namespace)
    if "PYICEBERG_CATALOG__REST__WAREHOUSE" in os.environ:
        _create_parents_too(catalog)
    return catalog


def _create_parents_too(catalog: Catalog) -> None:
    # As Polaris, the stand-in creates a namespace only in one that exists.
    create = catalog.create_namespace

    def with_parents(namespace: Any, properties: Any = {}) -> None:
        levels = catalog.identifier_to_tuple(namespace)
        for depth in range(1, len(levels)):
            with contextlib.suppress(NamespaceAlreadyExistsError):
                create(levels[:depth])
        create(namespace, properties)

    catalog.create_namespace = with_parents


@pytest.fixture
def catalog() -> Catalog:
    return _emptied_rest_catalog()


@pytest.fixture
def catalog_with_warehouse() -> Catalog:
    return _emptied_rest_catalog()
"""


def main() -> int:
    """Run the tests twice; print the totals and the differences."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--only", default="", help="an expression of pytest's -k")
    options.add_argument("--on", choices=WAYS, default="gateway")
    given = options.parse_args()
    only, ways = given.only, WAYS[given.on]
    try:
        with tempfile.TemporaryDirectory() as folder:
            suite = prepared(Path(folder) / "suite")
            first, second = (outcomes(suite, Path(folder) / str(number), only, way) for number, way in enumerate(ways))
    except UnavailableError as error:
        print(f"skipped: {error}")  # noqa: T201
        return SKIPPED
    return report(first, second, 0 if only else _LEAST[given.on], ways)


def fetched() -> Path:
    """Return the folder with the archive's content and the plugin its tests need, fetched with pip unless cached."""
    folder = cache_folder() / "pyiceberg-tests" / importlib.metadata.version("pyiceberg")
    if folder.is_dir():
        return folder
    with tempfile.TemporaryDirectory() as temporary:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        archive = f"pyiceberg=={importlib.metadata.version('pyiceberg')}"
        for arguments in (
            ["download", "--no-deps", "--no-binary", "pyiceberg", "--dest", temporary, archive],
            ["install", "--no-deps", "--target", f"{temporary}/content/plugins", _FIXTURES],
        ):
            done = subprocess.run([*pip, *arguments], check=False, capture_output=True, text=True)
            if done.returncode:
                raise UnavailableError(f"pip could not fetch pyiceberg's tests: {done.stderr.strip()[-200:]}")
        with tarfile.open(next(Path(temporary).glob("*.tar.gz"))) as opened:
            opened.extractall(Path(temporary) / "content", filter="data")
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(Path(temporary) / "content", folder)
    return folder


def prepared(suite: Path) -> Path:
    """Copy the tests of catalogs, with the fixtures replaced; return the folder."""
    content = fetched()
    (sources,) = content.glob("pyiceberg-*/tests")
    shutil.copytree(sources, suite / "tests")
    shutil.copytree(content / "plugins", suite / "plugins")
    with (suite / "tests" / "conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(_REST)
    (suite / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return suite


def outcomes(suite: Path, folder: Path, only: str, way: str) -> dict[str, str]:
    """Run the tests against a new server; return each test's outcome."""
    folder.mkdir()
    with served(folder, way) as catalog:
        properties = {f"PYICEBERG_CATALOG__REST__{name.upper()}": value for name, value in catalog.properties.items()}
        environment = {
            **os.environ,
            **properties,
            "REST_CATALOG_URI": catalog.url,
            "PYTHONPATH": f"{suite / 'plugins'}{os.pathsep}{suite}",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", str(suite / "pytest.ini")]
        done = subprocess.run(
            [*command, f"--junitxml={folder / 'report.xml'}", "-k", only, str(suite / "tests" / "catalog" / NAME)],
            cwd=suite,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    if done.returncode not in {0, 1}:
        raise SystemExit(f"pytest ended with status {done.returncode}: {done.stdout[-2000:]}{done.stderr[-500:]}")
    cases = ElementTree.parse(folder / "report.xml").getroot().iter("testcase")
    return {str(case.get("name")): outcome(case) for case in cases}


if __name__ == "__main__":
    sys.exit(main())
