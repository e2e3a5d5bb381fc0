"""A handle by id: get, result, cancel and wait, also for asyncio."""

import asyncio
from datetime import timedelta

import pytest

from delegation.tasks.errors import AwaitedTaskFailed
from delegation.tasks.life.model import Status
from tests.kit.tasks.sites import ADD, ONE, Site, Total


def test_a_handle_by_id_gets_waits_and_cancels() -> None:
    site = Site()
    submitted = site.client().submit(ADD, ONE)
    handle = site.client().handle(ADD, submitted.task_id)
    assert handle.get().status is Status.SUBMITTED
    site.worker("w", ADD).run_once()
    assert handle.result() == handle.wait(timedelta(seconds=1)) == Total(total=3)


def test_a_handle_by_id_serves_asyncio() -> None:
    site = Site()
    handle = site.client().handle(ADD, site.client().submit(ADD, ONE).task_id)

    async def cancelled() -> Status:
        task = await handle.asynchronous.cancel()
        with pytest.raises(AwaitedTaskFailed, match="CANCELLED"):
            await handle.asynchronous.wait()
        with pytest.raises(AwaitedTaskFailed):
            await handle.asynchronous.result()
        return (await handle.asynchronous.get()).status if task.is_terminal else task.status

    assert asyncio.run(cancelled()) is Status.FAILURE
