"""The endpoints of a stack's AWS services, and the access key with which its parts call them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

import boto3
from botocore.config import Config

from infra.local.aws.server import REGION

_PASSED_ON: Final = ("BOTOCORE_EXPERIMENTAL__PLUGINS", "RECORDED_CALLS")
"""Variables of this process that functions and jobs get too: a plugin of botocore's clients, by which tests record."""


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """The access key of the stack; moto accepts any, the user's own endpoints may not."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def choose(cls, environ: Mapping[str, str], *, foreign: bool) -> Self:
        """Return the keys of the AWS variables if an endpoint is `foreign` (the user's own), otherwise dummies."""
        key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
        if foreign and key_id and secret:
            return cls(key_id, secret, environ.get("AWS_SESSION_TOKEN"))
        return cls("local", "local")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The URLs of AWS services; `aws` serves all without a field here."""

    aws: str
    dynamodb: str
    s3: str
    keys: AwsKeys
    emr_serverless: str | None = None

    def environment(self) -> dict[str, str]:
        """Return the AWS SDKs' standard variables for a function; the machine's AWS configuration files are ignored."""
        optional = {
            "AWS_SESSION_TOKEN": self.keys.session_token,
            "AWS_ENDPOINT_URL_EMR_SERVERLESS": self.emr_serverless,
            **{name: os.environ.get(name) for name in _PASSED_ON},
        }
        return {
            "AWS_ENDPOINT_URL": self.aws,
            "AWS_ENDPOINT_URL_DYNAMODB": self.dynamodb,
            "AWS_ENDPOINT_URL_S3": self.s3,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": self.keys.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.keys.secret_access_key,
            **{name: value for name, value in optional.items() if value},
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }


def client(service: str, url: str, keys: AwsKeys, config: Config | None = None) -> Any:
    """Return a boto3 client with the stack's keys."""
    return boto3.session.Session().client(  # type: ignore[call-overload]
        service,
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        aws_session_token=keys.session_token,
        config=config,
    )
