"""Clients for the gateway's endpoints; the gateway is that of `rllm_core.testing.fixtures`."""

import pytest
from openai import AsyncOpenAI

from rllm_core.upstream import Endpoint


@pytest.fixture
async def client_of():
    clients = []

    def make(endpoint: Endpoint, **options) -> AsyncOpenAI:
        options = {"max_retries": 0, "timeout": 20, **options}
        client = AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()
