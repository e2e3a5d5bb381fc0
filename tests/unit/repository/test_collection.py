"""Collecting the tests stays cheap: each process of a run does it for all files."""

import pytest

from tests.scheduling import IMPORTED_BY_COLLECTION


@pytest.mark.parametrize("package", ["aws_cdk", "schemathesis"])
def test_collection_imports_no_package_that_starts_a_server_or_takes_seconds(
    package: str, pytestconfig: pytest.Config
) -> None:
    """Import it inside the fixture or the test that needs it; the CDK starts Node."""
    assert package not in pytestconfig.stash[IMPORTED_BY_COLLECTION]
