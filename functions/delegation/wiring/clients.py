"""boto3 clients; endpoints and regions come from AWS' environment variables."""

from typing import Any, Final

import boto3
from botocore.config import Config

QUICK: Final = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
"""For calls that answer in milliseconds: a hanging one is soon retried."""
WHILE_A_CALLER_WAITS: Final = Config(
    connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 2}
)
"""For the authorizer: two attempts, and a fetch of token keys, end within its 10 s."""
PATIENT: Final = Config(connect_timeout=3, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4})


def aws(service: str, config: Config = PATIENT) -> Any:
    client: Any = boto3.client  # the stubs overload it for literal names only
    return client(service, config=config)
