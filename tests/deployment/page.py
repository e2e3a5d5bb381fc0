"""docs/deployment.md as data: its commands and settings in order, and which of them `make deployment-check` runs."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.paths import DOCS

PAGE: Final = DOCS / "deployment.md"
SECTION: Final = "## The path\n"
CDK: Final = "npx --yes aws-cdk@^2.1147"
FOLLOWED: Final = (
    "export ",
    "output()",
    "read -rsp ",
    "delegation certs init",
    "delegation certs show",
    "delegation config check",
    "python -m infra.package",
    "python -c ",
    "rm probe.json",
    f"{CDK} synth",
    "cp ",
    f"{CDK} diff",
)
"""Beginnings of the commands that the check runs; each is in a block of the section."""
NEEDED: Final[Mapping[str, str]] = {
    "make venv": "nothing: make has done it before the check",
    ". .venv/bin/activate": "nothing: the check has the environment's programs first on its PATH",
    "ACCOUNT=$(aws ": "an AWS account",
    "VERSION=$(aws ": "an AWS account",
    "aws ": "an AWS account",
    "output ": "an AWS account",
    f"{CDK} bootstrap": "an AWS account",
    f"{CDK} deploy": "an AWS account",
    "cdk bootstrap": "an AWS account",
    "delegation polaris setup": "Polaris, and an administrator's credential",
    "rm principal.json": "the file that `delegation polaris setup` writes",
    "delegation deploy-check": "an AWS account",
    "delegation doctor": "a deployment",
    "delegation submit": "a deployment",
    "delegation tasks": "a deployment",
    "curl ": "a deployment",
    "delegation certs rotate": "a certificate that is to be replaced",
    "delegation certs revoke": "a certificate that is to be revoked",
    f"{CDK} synth -c delegation:package=none": "nothing: tests/infra/test_app.py synthesises so",
    "python -m infra.package.wheels": "the wheels of another constraints.txt",
    "python -m infra.package --architecture": "the wheels of another processor",
    "make package": "nothing: it is `python -m infra.package`",
    "make deployment-check": "nothing: it is this check",
    "make sam-check": "nothing: it is a check of its own",
    "make template-diffs": "nothing: tests/infra/deploying compares what it writes",
    "make localstack-test": "LocalStack: it is a check of its own",
    "sam ": "the SAM command: `make sam-check`",
    "docker ": "a container engine",
}
"""Beginnings of the commands that the check does not run, and what they need."""
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROGRAMS: Final = ("aws", "cdk", "curl", "delegation", "docker", "make", "npx", "python", "sam")
_QUOTED: Final = re.compile(rf"`((?:{'|'.join(_PROGRAMS)}) [^`]+)`")


@dataclass(frozen=True, slots=True)
class PageCommand:
    """A command of the page; `pasted` if it is in a block, else the text mentions it."""

    text: str
    pasted: bool = True

    @property
    def need(self) -> str | None:
        """What the command needs, None if the check runs it; raises UnknownCommand."""
        known = [one for one in (*FOLLOWED, *NEEDED) if self.text.startswith(one)]
        if not known:
            raise UnknownCommand(self.text)
        return NEEDED.get(max(known, key=len))


class UnknownCommand(ValueError):
    """The page names a command that is neither run by the check nor listed with what it needs."""

    def __init__(self, text: str) -> None:
        super().__init__(f"docs/deployment.md names `{text}`: add it to FOLLOWED or NEEDED in tests/deployment/page.py")


def path(page: str) -> str:
    """Return the section that is followed."""
    return page.partition(SECTION)[2].partition("\n## ")[0]


def steps(section: str) -> Iterator[PageCommand | dict[str, Any]]:
    """Yield the commands of a text's blocks, and the settings of those in JSON, in order."""
    for language, body in _FENCE.findall(section):
        if language == "json":
            yield json.loads(body)
        elif language != "text":
            yield from map(PageCommand, filter(None, body.replace("\\\n", " ").splitlines()))


def mentioned(page: str) -> list[PageCommand]:
    """Return the commands that the text names outside its blocks."""
    return [PageCommand(" ".join(text.split()), pasted=False) for text in _QUOTED.findall(_FENCE.sub("", page))]


def commands(page: str) -> list[PageCommand]:
    """Return all commands of a page."""
    return [*(one for one in steps(page) if isinstance(one, PageCommand)), *mentioned(page)]
