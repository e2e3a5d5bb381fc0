"""What Trino concludes from answers to commits is what its Iceberg Java concludes: nothing of its own is in between.

Read from Trino's plugin itself, which is 1 MB; a Trino that runs would take a gigabyte. The answers of Iceberg Java are
tested in test_lost_answers.py with 1.11, the version that this plugin has.
"""

import re
import zipfile
from pathlib import Path

import pytest

from delegation.gateway.keys.calls import CatalogClient, conclusion
from infra.local.aws.dynamodb import fetch
from infra.local.errors import UnavailableError

pytestmark = pytest.mark.long
PLUGIN = "io/trino/plugin/iceberg/"
REST = f"{PLUGIN}catalog/rest/"
EXCEPTIONS = "org/apache/iceberg/exceptions/"


@pytest.fixture(scope="module")
def folder() -> Path:
    try:
        return fetch(Path(__file__).with_name("trino-pom.xml"), "trino-iceberg")
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def classes(folder: Path) -> dict[str, str]:
    """The classes of the plugin with their constants, which name every class and method that they use."""
    [jar] = folder.glob("trino-iceberg-*.jar")
    with zipfile.ZipFile(jar) as opened:
        names = [name for name in opened.namelist() if name.startswith(PLUGIN) and name.endswith(".class")]
        return {name: opened.read(name).decode("latin-1") for name in names}


def test_its_iceberg_is_one_that_takes_503_for_an_unknown_outcome(folder: Path) -> None:
    [root] = folder.glob("trino-root-*.pom")
    [version] = re.findall(r"<dep\.iceberg\.version>([\d.]+)<", root.read_text(encoding="utf-8"))
    assert tuple(map(int, version.split("."))) >= (1, 11)


def test_commits_to_a_rest_catalog_are_those_of_iceberg_java(classes: dict[str, str]) -> None:
    """No class between Trino and Iceberg's RESTSessionCatalog decides about a commit's answer."""
    of_rest = {name: text for name, text in classes.items() if name.startswith(REST)}
    assert "org/apache/iceberg/rest/RESTSessionCatalog" in of_rest[f"{REST}TrinoRestCatalog.class"]
    for handled in (
        "CommitStateUnknownException",
        "CommitFailedException",
        "CleanableFailure",
        "ServiceFailureException",
    ):
        assert [name for name, text in of_rest.items() if f"{EXCEPTIONS}{handled}" in text] == []
    handlers = [name for name, text in of_rest.items() if "org/apache/iceberg/rest/ErrorHandlers" in text]
    assert all("VendedCredentials" in name for name in handlers)  # those of reading credentials
    assert not [name for name, text in of_rest.items() if "CommitErrorHandler" in text]


def test_a_failed_commit_ends_the_query_and_deletes_no_files(classes: dict[str, str]) -> None:
    """IcebergMetadata makes a TrinoException of each; only table directories of other catalogs are ever deleted."""
    metadata = classes[f"{PLUGIN}IcebergMetadata.class"]
    assert {f"{EXCEPTIONS}{each}" in metadata for each in ("CommitStateUnknownException", "CommitFailedException")} == {
        True
    }
    assert "CatalogUtil" not in metadata
    assert "dropTableData" not in metadata


def test_the_table_of_clients_says_so() -> None:
    statuses = range(200, 600)
    assert [conclusion(CatalogClient.TRINO, status) for status in statuses] == [
        conclusion(CatalogClient.ICEBERG, status) for status in statuses
    ]
