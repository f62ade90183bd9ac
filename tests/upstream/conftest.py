"""Clients that are closed when a test ends."""

import pytest
from openai import AsyncOpenAI


@pytest.fixture
async def client_of():
    clients = []

    def make(endpoint):
        client = AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key, max_retries=0)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()
