"""What releases of Iceberg Java conclude from answers to commits, asked of their own classes.

Up to 1.10 503 is "not applied", since 1.10.0 for the first commit of a created table alone (apache/iceberg issue
15050). What 1.11 deletes is tested in test_lost_answers.py.
"""

import subprocess
from pathlib import Path

import pytest

from delegation.gateway.keys.calls import CatalogClient, conclusion
from infra.local.aws.dynamodb import fetch, java
from infra.local.errors import UnavailableError

pytestmark = pytest.mark.long
STATUSES = (400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504)
HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("version", "client"),
    [
        ("1.9.2", CatalogClient.ICEBERG_1_10),
        ("1.10.0", CatalogClient.ICEBERG_1_10),
        ("1.10.1", CatalogClient.ICEBERG_1_10),
        ("1.11.0", CatalogClient.ICEBERG),
    ],
)
def test_iceberg_java_concludes_what_the_table_of_clients_says(
    tmp_path: Path, version: str, client: CatalogClient
) -> None:
    pom = tmp_path / "pom.xml"
    pom.write_text((HERE / "iceberg-core-pom.xml").read_text(encoding="utf-8").replace("VERSION", version))
    try:
        jars, runtime = fetch(pom, f"iceberg-{version}"), java()
    except UnavailableError as error:
        pytest.skip(str(error))
    program = [str(HERE / "CommitAnswers.java"), *map(str, STATUSES)]
    command = [runtime, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", *program]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert dict(line.split() for line in lines) == {str(status): conclusion(client, status).name for status in STATUSES}
