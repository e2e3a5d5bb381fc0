"""A shell with the runbook's functions, whose `aws` and `delegation` reach a site on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.local.aws.server import REGION
from infra.local.processes.programs import import_path
from tests.infra.operations.runbook import FOLDER, blocks
from tests.paths import ROOT


class RunbookShell:
    """Runs commands of the runbook's pages; `listed` is what CloudFormation would list of the site."""

    def __init__(
        self, folder: Path, *, aws: str, dynamodb: str, logs: str, listed: Sequence[Mapping[str, str]]
    ) -> None:
        self._programs = folder / "bin"
        self._programs.mkdir()
        self._site = folder / "site.json"
        site = {"aws": aws, "dynamodb": dynamodb, "region": REGION, "logs": logs, "resources": listed}
        self._site.write_text(json.dumps(site), encoding="utf-8")
        command = self._programs / "aws"
        command.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{ROOT}/tests/alarms/aws_command.py" "$@"\n', encoding="utf-8"
        )
        command.chmod(0o755)

    def run(self, commands: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run commands after those that the runbook sets up once, with more variables."""
        env = {
            **environment,
            "PATH": f"{self._programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": import_path(),
            "ALARMS_DRILL": str(self._site),
            "COLUMNS": "200",
        }
        text = "\n".join(["set -euo pipefail", *blocks(FOLDER / "README.md"), commands])
        return subprocess.run(["bash", "-c", text], env=env, capture_output=True, text=True, check=False, timeout=300)
