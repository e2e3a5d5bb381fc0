"""Clients share botocore's service descriptions, but no credentials."""

from typing import Any

import pytest

from delegation.storage import sessions as aws


def test_a_second_client_loads_no_description_and_has_separate_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    load_file = aws._LOADER.file_loader.load_file

    def counted(path: str, *options: Any) -> Any:
        read.append(path)
        return load_file(path, *options)

    monkeypatch.setattr(aws._LOADER.file_loader, "load_file", counted)
    keys = []
    for name in ("first", "second"):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        session = aws.new_session()
        before = len(read)
        session.client("s3", region_name="us-east-1")
        credentials = session.get_credentials()
        keys.append(credentials and credentials.access_key)
    assert keys == ["first", "second"]
    assert len(read) == before
