"""stack.json: the addresses of a running stack's parts, and the credentials that only this stack accepts."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

NAME = "stack.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackFile:
    """The fields of stack.json; paths are absolute, and `repr` omits the secrets.

    `polaris_root_credential` is for the management API, `polaris_public_key` (PEM) verifies Polaris' tokens; of a given
    Polaris the first is null, and the second unless it was given, too. `gateway_url` is the base of the same catalog
    behind the gateway, null without one.
    """

    edge_url: str
    ca_cert: str
    client_cert: str
    client_key: str
    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str
    operator_cert: str
    operator_key: str
    operator_client_id: str
    operator_client_secret: str = field(repr=False)
    operator_scope: str
    realm: str
    aws_endpoint: str
    dynamodb_endpoint: str
    s3_endpoint: str
    polaris_url: str
    polaris_credential: str = field(repr=False)
    polaris_scope: str
    polaris_root_credential: str | None = field(repr=False)
    polaris_public_key: str | None
    warehouse: str
    gateway_url: str | None

    def write(self, folder: Path) -> Path:
        """Write the file atomically, readable by its owner only; return its path."""
        target = folder / NAME
        # mkstemp creates with mode 0600.
        descriptor, temporary = tempfile.mkstemp(prefix=f".{NAME}.", dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(asdict(self), file, indent=2)
                file.write("\n")
            Path(temporary).replace(target)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
        return target


FIELDS = tuple(each.name for each in fields(StackFile))
