"""Follows docs/deployment.md in a copy of the checkout: each command of a block as a person pastes it, in one shell."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.deployment.options import require_options
from tests.deployment.page import CDK, PageCommand
from tests.paths import ROOT

SECRET: Final = "made-up:secret\n"
"""What is typed where the page has a secret read."""
_WITHOUT: Final = ("AWS_", "CDK_", "DELEGATION_", "PYTHON")
"""Beginnings of variables of this machine that a stranger has not."""
PINS: Final = ("delegation:client-subject", "delegation:client-issuer", "delegation:operator-subjects")
"""The settings that name the certificates which the page has made before."""
Report = Callable[[str, float, str, str], None]


class NotAsThePageSays(Exception):
    """A step has another result than the page says."""


def copy_checkout(target: Path) -> None:
    """Copy the files of the checkout, tracked and new ones, without what is built."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


@dataclass(slots=True)
class PastingShell:
    """A shell in the copy, without an AWS account; variables and functions of one command are there for the next."""

    folder: Path
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        """Begin with an empty state, kept outside the copy."""
        self.state = self.folder.parent / "state.sh"
        self.state.touch()

    def run(self, text: str) -> str:
        """Run a command; return what it prints. Raises NotAsThePageSays if it fails."""
        keeping = f'status=$?; {{ export -p; declare -f; }} > "{self.state}"; exit $status'
        script = f'set -u; . "{self.state}"\n{text}\n{keeping}'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._environment(),
            input=SECRET,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise NotAsThePageSays(f"`{text}` ended with {done.returncode}:\n{done.stdout[-4000:]}")
        return done.stdout

    def _environment(self) -> Mapping[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_WITHOUT)}
        programs = Path(sys.executable).parent
        nothing = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
        return {
            **kept,
            **nothing,
            "AWS_EC2_METADATA_DISABLED": "true",
            "DELEGATION_CONFIG": os.devnull,
            # npx asks before it fetches the CDK's command for the first time, which a person answers with y.
            "npm_config_yes": "true",
            "PATH": f"{programs}{os.pathsep}{kept['PATH']}",
            # As `make venv` in the copy would have installed it.
            "PYTHONPATH": os.pathsep.join((str(self.folder / "functions"), str(self.folder))),
        }


@dataclass(slots=True)
class Walk:
    """One walk along the page; `report` takes kind, seconds, step and result of each."""

    shell: PastingShell
    report: Report
    base: dict[str, Any] = field(default_factory=dict)
    others: list[dict[str, Any]] = field(default_factory=list)
    outputs: dict[str, set[str]] = field(default_factory=dict)
    certificates: str = ""

    def take(self, steps: Iterator[PageCommand | dict[str, Any]]) -> None:
        """Take each step; raises NotAsThePageSays, UnknownCommand or WrongCommand."""
        pasted: list[str] = []
        for step in steps:
            if isinstance(step, dict):
                self._note(step)
                continue
            pasted.append(step.text)
            require_options(step.text, whole=True)
            if step.need is not None:
                self.report("not run", 0, step.text, f"it needs {step.need}")
            else:
                self._follow(step.text)
        self._require_outputs(pasted)

    def _note(self, settings: dict[str, Any]) -> None:
        """Put the first settings into cdk.json; each further block is tried with them at synthesis."""
        if self.base:
            self.others.append(settings)
            return
        self.base = settings
        if absent := [settings[pin] for pin in PINS if settings[pin] not in self.certificates]:
            raise NotAsThePageSays(f"the page made no certificate of {', '.join(absent)}:\n{self.certificates}")
        self._edit(settings)
        self.report("edited", 0, "cdk.json", ", ".join(settings))

    def _edit(self, settings: Mapping[str, Any]) -> None:
        path = self.shell.folder / "cdk.json"
        document = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))
        document["context"] |= settings
        path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    def _follow(self, text: str) -> None:
        if text.startswith(f"{CDK} synth"):
            for added in self.others:
                self._edit(self.base | added)
                self._timed(text, f"with {', '.join(added)}: ")
            self._edit(self.base)
        self._timed(text)
        if text.startswith(f"{CDK} diff"):
            self._timed(text.partition(" -c ")[0])

    def _timed(self, text: str, note: str = "") -> None:
        if text.startswith(f"{CDK} synth"):
            shutil.rmtree(self.shell.folder / "cdk.out", ignore_errors=True)
        began = time.monotonic()
        printed = self.shell.run(text)
        seconds = time.monotonic() - began
        self.report("ran", seconds, text, note + self._found(text, printed))

    def _found(self, text: str, printed: str) -> str:
        """Return what a command has brought about; raises NotAsThePageSays if that is not what the page says."""
        if text.startswith("python -m infra.package"):
            return self._archives(printed)
        if text.startswith("delegation certs show"):
            self.certificates = printed
        if text.startswith(f"{CDK} synth"):
            return self._templates()
        if text.startswith(f"{CDK} diff"):
            return self._differences(text, printed)
        return printed.strip().partition("\n")[0]

    def _archives(self, printed: str) -> str:
        named = ("delegation-functions-arm64.zip", "delegation-spark-arm64.tgz")
        missing = [name for name in named if not (self.shell.folder / "dist" / name).is_file()]
        if missing:
            raise NotAsThePageSays(f"dist has no {', '.join(missing)}:\n{printed}")
        sizes = ((self.shell.folder / "dist" / name).stat().st_size / 1e6 for name in named)
        return ", ".join(f"{name} {size:.1f} MB" for name, size in zip(named, sizes, strict=True))

    def _templates(self) -> str:
        """Return the stacks; there is one of each part that the settings ask for."""
        given = json.loads((self.shell.folder / "cdk.json").read_text(encoding="utf-8"))["context"]
        parts = {"Data", "Service"}
        if given["delegation:network"] == "private" or "delegation:vpc-id" in given:
            parts.add("Network")
        if given["delegation:gateway"]:
            parts.add("Gateway")
        found: dict[str, int] = {}
        for file in sorted((self.shell.folder / "cdk.out").glob("*.template.json")):
            document = json.loads(file.read_text(encoding="utf-8"))
            part = file.name.partition(".")[0].rpartition("-")[2]
            found[part] = len(document["Resources"])
            self.outputs.setdefault(part, set()).update(document.get("Outputs", {}))
        if found.keys() != parts:
            raise NotAsThePageSays(f"synthesis made {', '.join(found) or 'nothing'}, not {', '.join(sorted(parts))}")
        return ", ".join(f"{part} {number} resources" for part, number in found.items())

    def _differences(self, text: str, printed: str) -> str:
        """Every resource that differs is shown by its logical id; without a change there is none."""
        match = re.search(r'--template (\S+) "([^"]+)"', text)
        if match is None:
            raise NotAsThePageSays(f"`{text}` names no template and stack")
        stack = self.shell.run(f'printf %s "{match[2]}"')
        before, after = (
            json.loads((self.shell.folder / name).read_text(encoding="utf-8"))["Resources"]
            for name in (match[1], f"cdk.out/{stack}.template.json")
        )
        both = {**before, **after}
        changed = [name for name in both if before.get(name) != after.get(name)]
        if bool(changed) != (" -c " in text):
            raise NotAsThePageSays(f"`{text}`: {len(changed)} resources differ")
        if not changed:
            if "no differences" not in printed:
                raise NotAsThePageSays(f"`{text}` shows differences where there are none:\n{printed[-4000:]}")
            return "no differences, as nothing was changed"
        if hidden := [name for name in changed if name not in printed]:
            raise NotAsThePageSays(f"`{text}` does not show {', '.join(hidden)}:\n{printed[-4000:]}")
        return "shows " + ", ".join(f"{both[name]['Type']} {name}" for name in changed)

    def _require_outputs(self, pasted: list[str]) -> None:
        """Each output that a command looks up is exactly one of its stack's."""
        for part, name in set(re.findall(r"\boutput (\w+) (\w+)", "\n".join(pasted))):
            found = [output for output in self.outputs.get(part, ()) if output.startswith(name)]
            if len(found) != 1:
                raise NotAsThePageSays(f"`output {part} {name}` finds {', '.join(found) or 'nothing'}")
            self.report("found", 0, f"output {part} {name}", f"the template of {part} has {found[0]}")
