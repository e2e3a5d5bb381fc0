"""The code on docs/java.md is that of the project beside it, and its rules are those of the Python client."""

import re
import subprocess

import pytest

from delegation.client.errors import HttpError, RequestStillRunning, ServiceFailed, error_for
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "java.md").read_text(encoding="utf-8")
SOURCES = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "java").rglob("*.java")))


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def keystore_commands() -> list[str]:
    """Return the commands that make keystores; tests.clients runs them."""
    (found,) = [block for block in blocks("bash") if "openssl" in block]
    return found.splitlines()


@pytest.mark.parametrize("block", blocks("java"), ids=lambda block: block.split("(")[0].split()[-1])
def test_java_on_the_page_is_in_the_project(block):
    assert block in SOURCES


def test_the_page_makes_both_stores():
    assert [command.split()[0] for command in keystore_commands()] == ["openssl", "keytool"]


@pytest.mark.parametrize(
    "name", ["alice.key", "alice.pem", "ca.pem", "client.p12", "trust.p12", "intent.json", "target/x"]
)
def test_what_the_page_has_the_reader_make_is_not_committed(name):
    done = subprocess.run(["git", "check-ignore", "--quiet", f"docs/java/{name}"], cwd=ROOT, check=False)
    assert done.returncode == 0, "keys would be added with the rest"


def test_the_example_has_no_time_in_its_payload():
    assert "requestTimestampUtc(" not in SOURCES


def repeated_in_java(answer: HttpError) -> bool:
    """Return what `mayRepeat` of the project answers; its source is compared, so that this stays the same rule."""
    (rule,) = re.findall(r"boolean mayRepeat\(\) \{(.*?)\n    \}", SOURCES, re.DOTALL)
    words = " ".join(rule.split())
    assert words == (
        "if (ended || Boolean.FALSE.equals(retryable)) { return false; } "
        'boolean running = status == 409 && "request_in_progress".equals(code); '
        "return running || status == 0 || status == 429 || status >= 500;"
    ), "the rule was changed: change the words below too"
    if answer.status == "FAILED_TERMINAL" or answer.retryable is False:
        return False
    running = answer.http_status == 409 and answer.error_code == "request_in_progress"
    return running or answer.http_status in {0, 429} or answer.http_status >= 500


@pytest.mark.parametrize("retryable", [None, True, False])
@pytest.mark.parametrize("status", [None, "FAILED_TERMINAL"])
@pytest.mark.parametrize("code", ["request_in_progress", "OTHER"])
@pytest.mark.parametrize("http_status", [400, 401, 403, 404, 409, 413, 415, 422, 429, 500, 502, 503, 504])
def test_java_repeats_what_the_python_client_repeats(http_status, code, status, retryable):
    answer = HttpError(http_status, code, "", status=status, retryable=retryable)
    in_python = isinstance(error_for(answer), RequestStillRunning | ServiceFailed)
    assert repeated_in_java(answer) == in_python
