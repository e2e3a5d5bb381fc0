"""`make schemathesis`: requests made from our document and from the proposal's appendix, sent to the local stack.

Exit status 0 if every check of schemathesis passed and the totals suffice, 1 if not. Our document is tried with all
checks, the appendix with all but status_code_conformance: the service has more statuses than the appendix.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from delegation.cli.connection import Stack
from infra.local.demo import tables
from tests.conformance.differences import APPENDIX
from tests.conformance.totals import Totals
from tests.integration.local.stack_process import StackProcess
from tests.paths import ROOT

OURS = ROOT / "docs" / "openapi.yaml"
SERVED = ROOT / "functions" / "delegation" / "edge" / "api" / "openapi.json"
CODES = ROOT / "functions" / "delegation" / "edge" / "codes.json"
_ENDED = {"SUCCESS", "FAILURE"}
_WAIT_SECONDS = 120.0


def main() -> int:
    """Run both documents, print totals, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemathesis", type=Path, default=ROOT / ".venv-contract" / "bin" / "schemathesis")
    parser.add_argument("--ours", type=int, default=160, help="generated examples of each operation of our document")
    parser.add_argument("--appendix", type=int, default=900, help="generated examples of the appendix's operation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stack", type=Path, help="the stack.json of a running stack; one is started by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = None if options.stack else StackProcess(folder / "state")
        try:
            path = options.stack or (process.ready() and process.path)
            return _Run(Stack.read(path), folder, options).both()
        finally:
            if process is not None:
                process.end(signal.SIGTERM)


class _Run:
    def __init__(self, stack: Stack, folder: Path, options: argparse.Namespace) -> None:
        self._stack = stack
        self._folder = folder
        self._options = options
        self._token = token(stack)

    def both(self) -> int:
        known = _ended_tasks(self._stack, self._token)
        runs = {
            "our document": (OURS, self._options.ours, ()),
            "the appendix": (APPENDIX, self._options.appendix, ("--exclude-checks", "status_code_conformance")),
        }
        total, failed = Totals(), []
        with ThreadPoolExecutor(len(runs)) as threads:
            # Both at once: each waits for the stack most of the time.
            running = {
                title: threads.submit(self._schemathesis, document, known, ("--max-examples", str(examples), *more))
                for title, (document, examples, more) in runs.items()
            }
        for title, (document, _, _) in runs.items():
            cases = self._cases(document)
            status, output, seconds = running[title].result()
            lines = cases.read_text(encoding="utf-8").splitlines()
            _print(output, f"{title}: schemathesis ended with {status} after {seconds:.0f} s")
            _print(*Totals().add(lines).lines())
            total.add(lines)
            failed += [f"schemathesis found failures with {title}"] if status else []
        _print("in all:", *total.lines())
        failed += total.shortfalls()
        _print(*(f"FAILED: {each}" for each in failed))
        return 1 if failed else 0

    def _cases(self, document: Path) -> Path:
        return self._folder / f"{document.stem}.jsonl"

    def _schemathesis(self, document: Path, known: list[str], arguments: tuple[str, ...]) -> tuple[int, str, float]:
        """Run schemathesis; return its exit status, its output and its seconds."""
        stack, began = self._stack, time.monotonic()
        self._cases(document).touch()
        command = [
            *(
                str(self._options.schemathesis.absolute()),
                "run",
                str(document),
                "--url",
                stack.edge_url,
                "--checks",
                "all",
            ),
            *("--header", f"Authorization: Bearer {self._token}", "--tls-verify", str(stack.ca_cert)),
            *("--request-cert", str(stack.client_cert), "--request-cert-key", str(stack.client_key)),
            *("--seed", str(self._options.seed), "--continue-on-failure", "--no-color", "--warnings", "off"),
            # A synchronous request may be held open for API Gateway's 29 s.
            *("--request-timeout", "40", *arguments),
        ]
        folder = self._folder / f"of {document.stem}"
        folder.mkdir()
        ended = subprocess.run(
            command,
            check=False,
            env=self._environment(document, known),
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return ended.returncode, ended.stdout, time.monotonic() - began

    def _environment(self, document: Path, known: list[str]) -> Mapping[str, str]:
        own = {
            "SCHEMATHESIS_HOOKS": "tests.conformance.hooks",
            "PYTHONPATH": str(ROOT),
            "CASES": str(self._cases(document)),
            "CODES": str(CODES),
            "REALM": self._stack.realm,
            "WAREHOUSE": self._stack.warehouse,
            "TASKS": ",".join(known),
        }
        return {**os.environ, **own, **({} if document == OURS else {"OURS": str(SERVED)})}


def token(stack: Stack) -> str:
    """Return an access token for the HTTPS front."""
    form = {
        "grant_type": "client_credentials",
        "client_id": stack.client_id,
        "client_secret": stack.client_secret.get_secret_value(),
        "scope": stack.scope,
    }
    found: str = httpx.post(stack.token_url, data=form).raise_for_status().json()["access_token"]
    return found


def _ended_tasks(stack: Stack, bearer: str) -> list[str]:
    """Purge a real table and one that does not exist; return the ids of the tasks, a SUCCESS and a FAILURE."""
    catalog = tables.connect(stack)
    catalog.create_namespace_if_not_exists(tables.NAMESPACE)
    table = f"generated_{uuid4().hex[:8]}"
    tables.create(catalog, tables.Recipe(table, appends=1, days=1), lambda _step: None)
    with httpx.Client(
        base_url=stack.edge_url,
        verify=stack.client_settings().mutual_tls(),
        headers={"Authorization": f"Bearer {bearer}"},
        timeout=60,
    ) as edge:
        made = [_submit(edge, stack, table, {}), _submit(edge, stack, f"no_{table}", _unknown(table))]
        for task, wanted in zip(made, ("SUCCESS", "FAILURE"), strict=True):
            found = _outcome(edge, task)
            if found != wanted:
                raise SystemExit(f"the task {task} ended as {found}, not as {wanted}; look at the stack's logs")
    return made


def _unknown(table: str) -> dict[str, Any]:
    location = f"s3://warehouse/{table}"
    metadata = {"location": location, "table-uuid": str(uuid4()), "format-version": 2}
    return {"metadata_location": f"{location}/metadata/1.json", "metadata": metadata, "config": {}}


def _submit(edge: httpx.Client, stack: Stack, table: str, loaded: Mapping[str, Any]) -> str:
    identity = {"catalog_name": stack.warehouse, "namespace_levels": [tables.NAMESPACE], "table_name": table}
    common = {"operation_type": "TABLE_PURGE", "realm_identifier": stack.realm}
    body = {"common_payload": common, "operation_parameters": {"table_identity": identity, **loaded}}
    answer = edge.post("v1/tasks", content=json.dumps(body), headers={"Content-Type": "application/json"})
    found: str = answer.raise_for_status().json()["delegation_task_id"]
    return found


def _outcome(edge: httpx.Client, task: str) -> str:
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        status: str = edge.get(f"v1/tasks/{task}").raise_for_status().json()["status"]
        if status in _ENDED or time.monotonic() > deadline:
            return status
        time.sleep(0.2)


def _print(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
