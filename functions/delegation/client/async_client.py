"""The client of the Delegation Service's REST API for asyncio; what it sends and decides is `DelegationClient`'s."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import Any, Self

import httpx

from delegation.client.client import TIMEOUT, new_key, tokens_of
from delegation.client.methods import Methods
from delegation.client.performing import Asyncio
from delegation.client.protocol.operations import Operations
from delegation.client.protocol.repeats import NoRepeats, Pauses, ReportRepeat, SameKeyPauses, log_repeat
from delegation.client.settings import ClientSettings
from delegation.client.tls import asyncio_client, blocking_client
from delegation.polaris.tokens import TokenSource
from delegation.timestamps import utc_now


class AsyncDelegationClient(Methods, Asyncio):
    """Calls the Delegation Service as DelegationClient does; its methods are coroutines and asynchronous iterators.

    Tokens come from a blocking, thread-safe source, so they are obtained in a thread. `on_repeat` and `on_progress` may
    be functions or coroutine functions. A cancelled coroutine may have sent its request: repeat it with its key, or
    look for the task.
    """

    def __init__(
        self,
        base_url: str,
        token: TokenSource,
        *,
        http: httpx.AsyncClient,
        clock: Callable[[], datetime] = utc_now,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        key: Callable[[], str] = new_key,
        backoff: Pauses | None = None,
        on_repeat: ReportRepeat = log_repeat,
        owned: Iterable[httpx.Client | httpx.AsyncClient] = (),
    ) -> None:
        """`owned` are the HTTP clients that `aclose` closes."""
        operations = Operations(
            base_url.rstrip("/"), clock=clock, key=key, pauses=backoff or SameKeyPauses(), on_repeat=on_repeat
        )
        super().__init__(operations, token, http, sleep)
        self._owned = tuple(owned)

    @classmethod
    def connect(cls, settings: ClientSettings, *, on_repeat: ReportRepeat = log_repeat) -> Self:
        """Return a client with the certificate and the OAuth2 client of the settings; raises ClientMisconfigured.

        Close it, or use it in an `async with` statement, when it is no longer needed.
        """
        issuer = blocking_client(settings.issuer_tls(), TIMEOUT)
        service = asyncio_client(settings.service_tls(), TIMEOUT)
        token = tokens_of(settings, issuer)
        return cls(settings.edge_url, token, http=service, on_repeat=on_repeat, owned=(issuer, service))

    def without_repeats(self) -> "AsyncDelegationClient":
        """See DelegationClient.without_repeats."""
        once = AsyncDelegationClient(self.operations.base_url, self._token, http=self._http, sleep=self._sleep)
        once.operations = self.operations.with_pauses(NoRepeats())
        return once

    async def aclose(self) -> None:
        """Close the connections that `connect` opened; may be called again."""
        for client in self._owned:
            if isinstance(client, httpx.AsyncClient):
                await client.aclose()
            else:
                client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
