"""moto inside the test's process, correct under threads, and with half of its work for DynamoDB left out.

moto copies its tables while it serves a transaction; when requests of two threads overlap, the copy raises, and
acknowledged writes are lost. `infra.local.aws.moto_app` does for moto's server what this module does for its mock.

An AttributeValue has one of ten members. moto's serializer looks for each of the ten under each of its possible names,
which took half of the time of all calls; here it looks for those that are there.
"""

import threading
from typing import Any

from moto import mock_aws
from moto.core.botocore_stubber import BotocoreStubber
from moto.core.serialize import ResponseSerializer

__all__ = ["mock_aws"]

_answer = BotocoreStubber.process_request
_one_request = threading.RLock()
_serialize_member = ResponseSerializer._serialize_structure_member


def _answer_alone(stubber: BotocoreStubber, request: Any) -> Any:
    with _one_request:
        return _answer(stubber, request)


BotocoreStubber.process_request = _answer_alone  # type: ignore[method-assign]


def _serialize_present_member(
    serializer: ResponseSerializer, serialized: Any, value: Any, shape: Any, key: str
) -> None:
    if type(value) is dict and key not in value and shape.parent.name == "AttributeValue":
        return
    _serialize_member(serializer, serialized, value, shape, key)


ResponseSerializer._serialize_structure_member = _serialize_present_member  # type: ignore[method-assign]
