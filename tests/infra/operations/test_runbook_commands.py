"""Every command of the runbook and of docs/operations.md exists, and finds what it looks for."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.operations.boards import QUERIES
from tests.deployment.options import WrongCommand, require_aws, require_delegation, require_options
from tests.infra.operations.runbook import FOLDER, PAGES, WATCHED, blocks, outside_blocks, pasted, quoted, text_of
from tests.paths import ROOT

COMMANDS = [(page.name, words) for page in WATCHED for words in pasted(page)]
SET_UP = FOLDER / "README.md"
DEFINED = set(re.findall(r"^(\w+)\(\) ", "\n".join(blocks(SET_UP)), re.MULTILINE))
OF_THE_SHELL = {"date", "echo", "grep", "python", "sleep"}
KUBECTL = {"-l", "-f", "--namespace", "--since", "--tail", "--prefix"}
"""Kubernetes Documentation, "kubectl logs" and "kubectl apply"."""
OF_LAMBDA = {"ERROR", "Task timed out", "OutOfMemory", "Runtime exited"}
"""What a log has that no line of the service's code prints (AWS Lambda Developer Guide, "Troubleshoot execution")."""


def of(program: str) -> list[list[str]]:
    return [words for _, words in COMMANDS if words[0] == program]


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


@pytest.mark.parametrize("page", WATCHED, ids=lambda page: page.name)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    for words in pasted(page):
        if words[0] == "aws":
            require_aws(words, whole=True)
        elif words[0] == "delegation":
            require_delegation(words[1:], whole=True)
        else:
            assert words[0] in DEFINED | OF_THE_SHELL | {"kubectl"}, words
    for text in quoted(page):
        require_options(text, whole=page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_command_to_paste_outside_a_block(page: Path) -> None:
    assert re.findall(r"^(?: {4,}|- *`)(?:aws|delegation|kubectl) .*$", outside_blocks(page), re.MULTILINE) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("aws cloudformation describe-stack-resources --stack-name S", "only the first 100 resources"),
        ("aws lambda list-functions --query 'Functions[0].Role' --output text", "each page"),
        ("aws lambda get-function --function-name F --query Configuration.State.Last", "has no Last"),
        ("aws lambda get-function --name F", "lacks --function-name"),
        ("aws dynamodb wait table-restored --table-name T", "waits for no table-restored"),
        ("aws logs tail G --last 1h", "has no --last"),
        ('aws logs tail "$(aws lambda get-functions --query Role)"', "has no get-functions"),
    ],
)
def test_what_a_command_of_aws_does_not_have_or_would_lose_is_found(text: str, fault: str) -> None:
    with pytest.raises(WrongCommand, match=fault):
        require_options(text, whole="--name" not in text or "lacks" in fault)


def test_kubectl_selects_the_pods_of_the_manifest() -> None:
    manifests = yaml.safe_load_all((ROOT / "infra/pairing/worker.yaml").read_text(encoding="utf-8"))
    pods = [one["spec"]["template"]["metadata"]["labels"] for one in manifests if one["kind"] == "Deployment"]
    selecting = [words for words in of("kubectl") if words[1] == "logs"]
    assert selecting
    for words in selecting:
        name, _, value = option(words, "-l").partition("=")
        assert any(labels.get(name) == value for labels in pods), f"{words} selects nothing: the labels are {pods}"
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= KUBECTL
        assert "--tail=-1" in words, "with a selector, kubectl shows ten lines of each pod otherwise"


def test_every_table_that_is_restored_is_waited_for_copied_and_deleted() -> None:
    there = [words for words in pasted(FOLDER / "restore.md") if words[0] in {"aws", "delegation"}]
    named = {option(words, "--target-table-name") for words in there if "--target-table-name" in words}
    restored = {name for name in named if name.endswith("-restored")}  # the other is a deleted table itself
    assert len(restored) == 2
    waited = [option(words, "--table-name") for words in there if words[1:4] == ["dynamodb", "wait", "table-exists"]]
    deleted = [option(words, "--table-name") for words in there if words[1:3] == ["dynamodb", "delete-table"]]
    copied = [{option(words, "--from"), option(words, "--records-from")} for words in there if words[1] == "recover"]
    assert (set(waited), set(deleted), copied) == (named, restored, [restored, restored])


def test_the_page_of_pauses_shows_them_and_ends_each_scope() -> None:
    there = {" ".join(words) for words in pasted(FOLDER / "paused.md")}
    resumed = {"delegation resume", "delegation resume --realm", "delegation resume --table CATALOG.NAMESPACE.TABLE"}
    assert {"delegation pauses", *resumed} <= there


def test_the_saved_queries_and_dashboards_that_pages_name_exist() -> None:
    text = " ".join(" ".join(text_of(page).split()) for page in WATCHED)
    named = set(re.findall(r"quer(?:y|ies) \*([^*]+)\*", text))
    assert {"failures by code and table"} <= named <= {query.name for query in QUERIES}
    assert set(re.findall(r"[Dd]ashboards? \*([^*]+)\*", text)) == {"users", "resources"}


def test_the_lines_that_pages_look_for_are_printed() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "functions").rglob("*.py"))
    wanted = [option(words, "--filter-pattern") for words in of("aws") if "--filter-pattern" in words]
    wanted += [words[-1] for words in of("grep") if not words[-1].startswith((".", "-"))]
    texts = {text.strip('?"') for pattern in wanted for text in re.findall(r'"[^"]+"|^[^"?]+$|\?\w+', pattern)}
    assert len(texts) > 10
    assert {text for text in texts if text not in code} - OF_LAMBDA == set()


def test_the_resources_that_the_runbook_looks_up_exist_once(everything: dict[str, Any]) -> None:
    functions = [f"Functions{words[1]}" for name in ("function_of", "log_of") for words in of(name)]
    looked_up = {("AWS::Lambda::Function", name, "service") for name in functions}
    looked_up |= {("AWS::SQS::Queue", words[1], "service") for words in of("queue_of")}
    looked_up |= {("AWS::DynamoDB::Table", f"Tables{words[1]}", "data") for words in of("table_of")}
    for _, kind, name, *stack in of("resource"):
        looked_up.add((kind, name, stack[0].rpartition("-")[2].lower() if stack else "service"))
    looked_up = {one for one in looked_up if "value" not in one[1]}
    assert {name for _, name, _ in looked_up} >= {"FunctionsDispatcher", "TablesTasks", "Workflow", "Gateway"}
    for kind, name, stack in looked_up:
        found = everything[stack].resources(kind)
        assert sum(one.startswith(name) for one in found) == 1, f"{kind} {name} is not one of {sorted(found)}"
