"""A gateway that listens, and clients for its endpoints."""

from collections.abc import AsyncIterator

import pytest
from openai import AsyncOpenAI

from rllm_core.gateway import Gateway
from rllm_core.gateway.renderers import ChatMLRenderer
from rllm_core.testing.tokenizer import AmbiguousTokenizer
from rllm_core.upstream import Endpoint


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    server = Gateway()
    await server.start()
    yield server
    await server.close()


@pytest.fixture
def renderer() -> ChatMLRenderer:
    return ChatMLRenderer(AmbiguousTokenizer())


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
