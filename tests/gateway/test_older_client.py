"""What Iceberg Java 1.10.0 concludes from answers to commits, asked of its own classes.

The last release that takes 503 for "not applied" (apache/iceberg issue 15050); later ones are tested in
test_lost_answers.py by what they delete.
"""

import subprocess
from pathlib import Path

import pytest

from delegation.gateway.keys.clients import CatalogClient, conclusion
from infra.local.aws.dynamodb import fetch, java
from infra.local.errors import UnavailableError

pytestmark = pytest.mark.long
STATUSES = (400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504)


@pytest.fixture(scope="module")
def concluded() -> dict[int, str]:
    """By status, what the client raises for it."""
    here = Path(__file__)
    try:
        jars = fetch(here.with_name("iceberg-1.10.0-pom.xml"), "iceberg-1.10.0")
        runtime = java()
    except UnavailableError as error:
        pytest.skip(str(error))
    program = here.with_name("CommitAnswers.java")
    command = [runtime, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(program), *map(str, STATUSES)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {int(status): said for status, said in (line.split() for line in lines)}


@pytest.mark.parametrize("status", STATUSES)
def test_iceberg_java_1_10_0_concludes_what_the_table_of_clients_says(concluded: dict[int, str], status: int) -> None:
    assert concluded[status] == conclusion(CatalogClient.ICEBERG_1_10_0, status).name
