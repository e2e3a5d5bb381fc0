"""`python recording_stack.py FILE …` runs `delegation …` and records each secret that its servers return in FILE.

Each line is one JSON string. FILE is outside the stack's folder; everything else is unchanged.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint
from typing import Any

from delegation.cli.main import ENTRY_POINTS, build
from infra.local.catalog.access import TokenBroker
from infra.local.catalog.metadata import CredentialVendor
from infra.local.identities import TokenIssuer

VENDED = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")


def record(owner: type, method: str, secrets_of: Callable[[Any], Iterable[str]], descriptor: int) -> None:
    """Have `owner.method` record the secrets in its results."""
    original = getattr(owner, method)

    def recording(*args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        for secret in secrets_of(answer):
            os.write(descriptor, json.dumps(secret).encode() + b"\n")
        return answer

    setattr(owner, method, recording)


def main() -> None:
    file, *arguments = sys.argv[1:]
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    record(CredentialVendor, "vend", lambda config: [config[name] for name in VENDED], descriptor)
    record(TokenBroker, "token", lambda answer: [answer[1]["access_token"]] if answer[0] == 200 else [], descriptor)
    record(TokenIssuer, "issue", lambda token: [token], descriptor)
    sys.argv = ["delegation", *arguments]
    build([EntryPoint("local", "infra.local.command:app", ENTRY_POINTS)])()


if __name__ == "__main__":
    main()
