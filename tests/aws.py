"""moto inside the test's process, correct under threads.

moto copies its tables while it serves a transaction; when requests of two threads overlap, the copy raises, and
acknowledged writes are lost. `infra.local.aws.moto_app` does for moto's server what this module does for its mock.
"""

import threading
from typing import Any

from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber

from infra.local.aws.moto_shortcuts import take_shortcuts

__all__ = ["mock_aws"]

_answer = BotocoreStubber.process_request
_one_request = threading.RLock()


def _answer_alone(stubber: BotocoreStubber, request: Any) -> Any:
    with _one_request:
        return _answer(stubber, request)


BotocoreStubber.process_request = _answer_alone  # type: ignore[method-assign]
take_shortcuts()
