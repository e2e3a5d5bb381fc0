"""`python -m tests.canonical`: hashes payloads with a package of Node too, and compares; prints totals last.

The packages come from npm's registry into a temporary folder. Exit status 1 when a form differs, 2 without Node or the
registry. `--record` writes some of Node's hashes to recorded.json, which every test run compares with ours.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from delegation.edge.requests import read_body
from delegation.idempotency.keys import RULE, canonical_json, payload_hash
from tests.canonical.cases import cases
from tests.paths import ROOT

PACKAGES: Final = ("canonicalize@2.1.0", "lossless-json@4.3.3")
"""The JavaScript implementation by an author of RFC 8785, and a parser that keeps the digits of a number."""
SCRIPT: Final = Path(__file__).with_name("hashes.mjs")
NEED: Final = ROOT / ".ci" / "need"
RECORDED: Final = Path(__file__).with_name("recorded.json")
_RECORDED_NAMES: Final = ("RFC 8785 ", "integers around ", "snapshot ids 1", "generated 1")


class NodeUnavailable(Exception):
    """Node is missing, or npm cannot install the packages; the text says which."""


def install(folder: Path) -> None:
    """Install the packages into a folder; raises NodeUnavailable."""
    command = ["npm", "install", "--no-save", "--no-package-lock", "--no-audit", "--no-fund", *PACKAGES]
    try:
        subprocess.run([NEED, "node"], check=True, capture_output=True, text=True)
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as failed:
        raise NodeUnavailable(f"{failed.cmd[0]}: {failed.stderr.strip()[-500:]}") from None


def in_node(payloads: Sequence[tuple[str, str]], folder: Path) -> Mapping[str, tuple[str, str]]:
    """Return the canonical form and the hash of each payload by its name."""
    lines = "".join(json.dumps({"name": name, "text": text}) + "\n" for name, text in payloads)
    done = subprocess.run(["node", SCRIPT], cwd=folder, input=lines, check=True, capture_output=True, text=True)
    found = (json.loads(line) for line in done.stdout.splitlines())
    return {one["name"]: (one["canonical"], one["hash"]) for one in found}


def here(text: str) -> tuple[str, str]:
    """Return the canonical form and the hash of a payload, parsed as the API does."""
    document = dict(read_body(text))
    parameters = document.get("operation_parameters")
    if parameters is not None:
        kept = {name: value for name, value in parameters.items() if name not in {"config", "storage-credentials"}}
        document["operation_parameters"] = kept
    return canonical_json(document, rule=RULE).decode(), payload_hash(read_body(text))


def compared() -> tuple[Mapping[str, tuple[str, str]], list[str]]:
    """Return what Node made of all payloads, and the names of those for which ours differs; raises NodeUnavailable."""
    payloads = list(cases())
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        theirs = in_node(payloads, Path(folder))
    return theirs, [name for name, text in payloads if theirs.get(name) != here(text)]


def main() -> int:
    try:
        theirs, differ = compared()
    except NodeUnavailable as error:
        sys.stdout.write(f"not compared: {error}\n")
        return 2
    for name in differ:
        sys.stdout.write(f"differs: {name}\n")
    if "--record" in sys.argv[1:]:
        kept = {name: value for name, (_, value) in theirs.items() if name.startswith(_RECORDED_NAMES)}
        RECORDED.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    number = len(theirs)
    sys.stdout.write(f"{number - len(differ)} of {number} payloads have the same canonical form and hash in Node\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
