"""What a function has no room for moves into an object; what is still too much is an error at synthesis."""

import json
import shlex

import pytest

from delegation.environment import SETTINGS_OBJECT
from infra.environment.functions import FUNCTIONS
from infra.environment.resources import (
    LIMIT_BYTES,
    MOVABLE,
    TooManyVariables,
    environment,
    fitted,
    size_of,
    stored_settings,
)
from tests.infra.test_environment import DEPLOYMENT

URL = "s3://assets/settings.json"
LONG = DEPLOYMENT.replaced(
    properties={**DEPLOYMENT["properties"], "delegation.limits.bucket": "1" * 4000},
    client_ca="PEM" * 1400,
    settings_object=URL,
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_variables_that_fit_stay(name: str) -> None:
    given = environment(name, DEPLOYMENT.replaced(settings_object=URL))
    assert fitted(name, given, URL) == given


@pytest.mark.parametrize("name", FUNCTIONS)
def test_long_variables_are_read_from_the_object(name: str) -> None:
    given = environment(name, LONG)
    kept = fitted(name, given, URL)
    assert size_of(kept) <= LIMIT_BYTES
    assert kept[SETTINGS_OBJECT] == URL
    assert given.keys() - kept.keys() <= stored_settings(LONG).keys() <= MOVABLE


def test_a_job_reads_its_properties_from_the_object() -> None:
    """The text of `sparkSubmitParameters` then has nothing that needs quotes."""
    parameters = environment("start_job", LONG)["DELEGATION_EMR_SPARK_PARAMETERS"]
    assert "DELEGATION_PROPERTIES" not in parameters
    assert f"--conf spark.emr-serverless.driverEnv.{SETTINGS_OBJECT}={URL}" in parameters
    assert shlex.split(parameters) == parameters.split()
    assert json.loads(stored_settings(LONG)["DELEGATION_PROPERTIES"]) == LONG["properties"]


def test_variables_that_never_fit_are_refused_and_the_longest_are_named() -> None:
    given = environment("authorizer", DEPLOYMENT.replaced(operator_subjects="CN=" + "x" * 5000))
    with pytest.raises(TooManyVariables, match=r"authorizer have about .* DELEGATION_OPERATOR_SUBJECTS"):
        fitted("authorizer", given, URL)


def test_what_is_known_only_at_deployment_counts_with_a_bound() -> None:
    assert size_of({"A": "arn:${Token[AWS.Partition.9]}:sns"}) == 1 + len("arn:") + 10 + len(":sns")
    assert size_of({"A": "${Token[TOKEN.123]}"}) == 129
