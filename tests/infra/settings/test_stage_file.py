"""`delegation:file`: it precedes cdk.json, and `cdk -c` precedes it."""

import json
from pathlib import Path

import pytest

from infra.environment.context import StageFileError, with_stage_file

DEFAULTS = {"delegation:stage": "prod", "delegation:realm": "POLARIS", "@aws-cdk/x": True}


def test_layers(tmp_path: Path) -> None:
    (tmp_path / "test.json").write_text(json.dumps({"delegation:stage": "test", "delegation:realm": "T"}))
    given = {**DEFAULTS, "delegation:file": "test.json", "delegation:realm": "BY_OPTION"}
    assert with_stage_file(given, DEFAULTS, root=tmp_path) == {
        "delegation:stage": "test",
        "delegation:realm": "BY_OPTION",
        "@aws-cdk/x": True,
    }
    assert with_stage_file(DEFAULTS, DEFAULTS) == DEFAULTS


@pytest.mark.parametrize("text", [None, "{", "[]", '{"stage": "test"}', '{"delegation:file": "other.json"}'])
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "test.json").write_text(text)
    with pytest.raises(StageFileError, match=r"delegation:file: .*test\.json"):
        with_stage_file({"delegation:file": "test.json"}, {}, root=tmp_path)
