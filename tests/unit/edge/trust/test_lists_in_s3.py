"""The authorizer fetches revocation lists from S3, and loads boto3 only for that."""

import os
import subprocess
import sys
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from botocore.stub import Stubber

from delegation.edge.errors import RevocationListUnavailable
from delegation.edge.trust.revocation import Fetched, s3_fetch
from infra.local.processes.programs import import_path
from tests.aws import mock_aws
from tests.unit.edge.trust.pki import ISSUER, SUBJECT, authority, pem, public_pem, rsa_key

URL = "s3://lists/ca/current.crl"
OBJECT = {"Bucket": "lists", "Key": "ca/current.crl"}


@pytest.fixture
def s3() -> Any:
    return boto3.client("s3", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


def test_an_object_is_returned_with_its_version_and_not_again() -> None:
    with mock_aws():
        s3 = boto3.client("s3", "us-east-1")
        s3.create_bucket(Bucket="lists")
        s3.put_object(**OBJECT, Body=b"list")
        fetch = s3_fetch(s3)
        found = fetch(URL, None)
        assert found.data == b"list"
        assert fetch(URL, found.version) is None
        s3.put_object(**OBJECT, Body=b"the next list")
        assert fetch(URL, found.version) == Fetched(b"the next list", s3.head_object(**OBJECT)["ETag"])


@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchKey", "SlowDown"])
def test_a_refusal_names_the_object_and_s3s_code(s3: Any, code: str) -> None:
    with Stubber(s3) as stub:
        stub.add_client_error("get_object", code, http_status_code=403)
        with pytest.raises(RevocationListUnavailable, match=f"{URL}: {code}"):
            s3_fetch(s3)(URL, None)


@pytest.mark.parametrize("trouble", [ReadTimeoutError(endpoint_url="https://s3"), ConnectionResetError()])
def test_a_silent_store_is_unavailable(s3: Any, monkeypatch: pytest.MonkeyPatch, trouble: Exception) -> None:
    def fail(**_: Any) -> Any:
        raise trouble

    monkeypatch.setattr(s3, "get_object", fail)
    with pytest.raises(RevocationListUnavailable, match=type(trouble).__name__):
        s3_fetch(s3)(URL, None)


def test_boto3_is_not_loaded_without_lists_in_s3() -> None:
    code = "import sys; from delegation.handlers.authorizer import authorizer as a; a(); print('boto3' in sys.modules)"
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": import_path(),
        "AWS_DEFAULT_REGION": "us-east-1",
        "DELEGATION_CLIENT_SUBJECT": SUBJECT,
        "DELEGATION_CLIENT_ISSUER": ISSUER,
        "DELEGATION_CLIENT_CA": pem(authority()),
        "DELEGATION_TOKEN_ISSUER": "https://issuer.test",
        "DELEGATION_TOKEN_PUBLIC_KEY": public_pem(rsa_key()),
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
