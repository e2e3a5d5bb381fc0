"""The shell functions of the runbook find a resource of a stack that AWS lists in several pages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.infra.operations.runbook import FOLDER, blocks

FAKE = f"""#!{sys.executable}
import json, sys, jmespath
words = sys.argv[1:]
of = dict(zip(words, words[1:]))
assert words[0] == "cloudformation" and of["--output"] == "text", words
pages = json.load(open(__file__ + "." + of["--stack-name"]))
if words[1] == "describe-stack-resources":
    pages = [dict(StackResources=pages[0])]
else:
    pages = [dict(StackResourceSummaries=page) for page in pages]
for page in pages:
    found = jmespath.search(of["--query"], page)
    lines = found if isinstance(found, list) else [found]
    for line in lines if not lines or isinstance(lines[0], list) else [lines]:
        print("\\t".join(map(str, line)))
"""
"""Answers as the AWS CLI does: it applies --query to each page, and a list of text is one line (AWS CLI User Guide,
"Setting the output format", "text");
one operation has pages of 100 resources, the other answers with the first 100 alone."""


def resource(kind: str, name: str) -> dict[str, str]:
    return {"ResourceType": kind, "LogicalResourceId": f"{name}1234ABCD", "PhysicalResourceId": f"deployed-{name}"}


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell with such an `aws`: two stacks, of which one has 126 resources in two pages."""
    fake = tmp_path / "aws"
    fake.write_text(FAKE, encoding="utf-8")
    fake.chmod(0o700)
    first = [resource("AWS::IAM::Role", f"Role{number}") for number in range(99)]
    first.append(resource("AWS::Lambda::Function", "FunctionsApi"))
    second = [resource("AWS::SQS::Queue", f"Queue{number}") for number in range(25)]
    second.append(resource("AWS::Lambda::Function", "FunctionsSweeper"))
    stacks = {"Service": [first, second], "Data": [[resource("AWS::DynamoDB::Table", "TablesTasks")]]}
    for name, pages in stacks.items():
        (tmp_path / f"aws.PolarisDelegation-prod-{name}").write_text(json.dumps(pages), encoding="utf-8")
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def ask(shell: dict[str, str], *commands: str) -> subprocess.CompletedProcess[str]:
    text = "\n".join([*blocks(FOLDER / "README.md"), *commands])
    return subprocess.run(["bash", "-c", text], env=shell, capture_output=True, text=True, check=True)


def test_a_resource_is_found_on_whichever_page_it_is(shell: dict[str, str]) -> None:
    asked = ask(shell, "function_of Api", "function_of Sweeper", "queue_of Queue24", "table_of Tasks")
    assert asked.stdout.split() == [
        "deployed-FunctionsApi",
        "deployed-FunctionsSweeper",
        "deployed-Queue24",
        "deployed-TablesTasks",
    ]
    assert asked.stderr == ""


def test_a_resource_that_the_stack_does_not_have_is_named(shell: dict[str, str]) -> None:
    asked = ask(shell, "function_of Notifier")
    assert asked.stdout == ""
    assert asked.stderr == "no AWS::Lambda::Function FunctionsNotifier in PolarisDelegation-prod-Service\n"
