"""Misuse: JSON where it is wanted, stable exit statuses, and no suggestion that changes something."""

import json
import os
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from delegation.cli.errors import HARMLESS, suggestion
from delegation.cli.main import build
from tests.paths import ROOT
from tests.unit.client.service import TASK_ID

ROOT_WORDS = list(get_command(build(())).loaders)


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "--json"),
        ("tasks", "lst", "--json"),
        ("tasks", "list", "--json", "--limit", "0"),
        ("tasks", "list", "--json", "--status", "QUEUED"),
        ("tasks", "show", "--json"),
        ("tasks", "show", TASK_ID, "--json", "--colour"),
        ("tasks", "list", "--since", "yesterday", "--json"),
        ("tasks", "cancel", "--json"),
        ("--json",),
        ("tasks", "--json"),
    ],
)
def test_a_misuse_is_one_json_document_with_exit_status_2(run, service, words):
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    problem = json.loads(result.stderr)
    assert problem["error_code"] == "MISUSE"
    assert problem["message"]
    assert "--help" in problem["next_step"]


def test_a_misuse_without_json_is_text(run):
    result = run("tasks", "lst")
    assert result.exit_code == 2
    assert "list" in result.stderr


@pytest.mark.parametrize("wrong", ["pause", "purg", "submitt", "retyr", "certz", "cance", "localt", "wroker"])
def test_no_wrong_word_is_answered_with_one_that_changes_something(run, wrong):
    for words in ((wrong,), ("tasks", wrong), ("persistence", wrong), ("persistence", "refs", wrong)):
        text = run(*words).stderr
        assert "Did you mean" not in text or any(f"'{word}'" in text for word in HARMLESS)
        assert "'purge'" not in text


@settings(max_examples=50)
@given(wrong=st.one_of(st.text(min_size=1, max_size=12), st.sampled_from(ROOT_WORDS).map(lambda word: word[:-1])))
def test_a_suggestion_is_always_harmless(wrong):
    text = suggestion(wrong, ROOT_WORDS)
    assert all(f"'{word}'" not in text for word in set(ROOT_WORDS) - HARMLESS)


def test_a_wrong_option_is_not_answered_with_consent(run):
    assert "--yes" not in run("submit", "lake.sales.orders", "--ye").stderr
    assert "--direct" in run("tasks", "show", TASK_ID, "--direc").stderr


def test_the_release_is_printed(run):
    assert run("--version").stdout.startswith("delegation 0.")
    assert set(json.loads(run("--version", "--json").stdout)) == {"version"}


def test_a_question_that_is_not_answered_with_yes_is_json_too(run, stack, monkeypatch):
    monkeypatch.setattr("delegation.cli.calls.at_a_terminal", lambda: True)
    result = run("submit", "lake.sales.orders", "--json", "--stack", str(stack), given="n\n")
    assert result.exit_code == 1
    assert json.loads(result.stderr[result.stderr.index("{") :])["error_code"] == "ABORTED"


def test_words_are_completed_by_the_shell():
    done = CliRunner().invoke(
        build(()), [], prog_name="delegation",
        env={"_DELEGATION_COMPLETE": "complete_bash", "COMP_WORDS": "delegation tasks li", "COMP_CWORD": "2"},
    )  # fmt: skip
    assert done.stdout.split() == ["list"]


BLOCKED = (
    *("boto3", "botocore", "cbor2", "aws_lambda_powertools", "aws_xray_sdk", "cramjam", "cronsim", "cryptography"),
    *("jwt", "rfc8785", "tzdata", "zstandard"),
)
"""What the extra `service` brings."""


ALONE = f"""
import contextlib, io, json, shlex, sys
for name in {BLOCKED}:
    sys.modules[name] = None
from delegation.cli.main import build
ends = {{}}
for line in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            build(())(shlex.split(line)[1:])
        except SystemExit:
            pass
    ends[line] = "[service]" in said.getvalue()
print(json.dumps(ends))
"""


def test_the_page_lists_the_commands_that_need_the_service_and_no_other_does(tmp_path):
    page = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
    listed = re.findall(r"`([a-z-]+(?: [a-z-]+)?)`", page.partition("need the extra `[service]`")[2].partition(".")[0])
    assert len(listed) > 10
    # Of a checkout, or waiting, or reaching for the network.
    left_out = {"local", "ui", "doctor", "polaris", "persistence"}
    found = re.findall(r"^    (delegation [a-z][^\n>]+)", page, re.MULTILINE)
    lines = sorted({line for line in found if "--direct" not in line and line.split()[1] not in left_out})
    given = {"input": json.dumps(lines), "env": {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, "cwd": tmp_path}
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=False, **given)
    assert done.stderr == ""
    wrong = {
        line: needs
        for line, needs in json.loads(done.stdout).items()
        if needs != any(f"{line} ".startswith(f"delegation {words} ") for words in listed)
    }
    assert wrong == {}
