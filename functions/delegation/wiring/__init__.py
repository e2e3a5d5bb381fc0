"""Builds the parts of each process from its settings, which may be in an object in S3."""

from delegation.environment import StoredSettingsError, fetch_with


def fetch_settings(url: str) -> str:
    """Return the text of an object `s3://bucket/key`. Raises StoredSettingsError."""
    # Imported here: boto3 would lengthen the cold start of every authorizer without such an object.
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    from delegation.wiring.clients import QUICK, aws  # noqa: PLC0415

    bucket, _, key = url.removeprefix("s3://").partition("/")
    try:
        text: str = aws("s3", QUICK).get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    except ClientError as error:
        raise StoredSettingsError(url, f"cannot be read: {error.response['Error']['Code']}") from error
    except BotoCoreError as error:
        raise StoredSettingsError(url, f"cannot be read: {type(error).__name__}") from error
    return text


fetch_with("s3", fetch_settings)
