"""The keys that sign callbacks: read from AWS Secrets Manager or Parameter Store, never stored or logged. The text is a
JSON object with one or two keys for each callback, `{"catalog": ["the next key", "the present key"]}`, read again after
five minutes, so a key is replaced without a deployment."""

import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from delegation.notifications.https import CallbackKeysUnavailable
from delegation.wire.signatures import MOST_KEYS, SHORTEST_KEY

READ_AGAIN_AFTER: Final = timedelta(minutes=5)
Keys = Callable[[str], tuple[bytes, ...]]
"""Returns the keys of a callback by its name; raises CallbackKeysUnavailable."""


def is_parameter(reference: str) -> bool:
    """Return whether a reference is an ARN of Parameter Store; it is of Secrets Manager otherwise."""
    return reference.split(":")[2:3] == ["ssm"]


def reader(reference: str, client_of: Callable[[str], Any]) -> Callable[[], str]:
    """Return what reads the text of a reference, or raises CallbackKeysUnavailable; `client_of` makes clients."""

    def read() -> str:
        try:
            if is_parameter(reference):
                answer = client_of("ssm").get_parameter(Name=reference, WithDecryption=True)
                return str(answer["Parameter"]["Value"])
            return str(client_of("secretsmanager").get_secret_value(SecretId=reference).get("SecretString") or "")
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise CallbackKeysUnavailable(f"the keys of callbacks cannot be read from {reference}: {code}") from None
        except BotoCoreError as error:
            raise CallbackKeysUnavailable(f"{reference} was not read: {type(error).__name__}") from None

    return read


class SigningKeys:
    """Keys by callback; they are kept for READ_AGAIN_AFTER."""

    def __init__(self, read: Callable[[], str], *, clock: Callable[[], datetime]) -> None:
        self._read = read
        self._clock = clock
        self._kept: tuple[datetime, Mapping[str, Any]] | None = None

    def __call__(self, name: str) -> tuple[bytes, ...]:
        """Return one or two keys of a callback, the next one first; raises CallbackKeysUnavailable."""
        keys = self._by_name().get(name)
        texts = [keys] if isinstance(keys, str) else keys
        if not isinstance(texts, list) or not 1 <= len(texts) <= MOST_KEYS:
            raise CallbackKeysUnavailable(f"the keys of callback {name} must be a list of one or {MOST_KEYS} texts")
        found = tuple(text.encode() for text in texts if isinstance(text, str))
        if len(found) != len(texts) or any(len(key) < SHORTEST_KEY for key in found):
            raise CallbackKeysUnavailable(
                f"each key of callback {name} must be a text of at least {SHORTEST_KEY} bytes"
            )
        return found

    def _by_name(self) -> Mapping[str, Any]:
        now = self._clock()
        if self._kept is None or now - self._kept[0] >= READ_AGAIN_AFTER:
            self._kept = (now, _object(self._read()))
        return self._kept[1]


def _object(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None  # the parser's error would quote the keys
    if not isinstance(document, dict):
        raise CallbackKeysUnavailable('the keys of callbacks must be a JSON object such as {"catalog": ["…"]}')
    return document
