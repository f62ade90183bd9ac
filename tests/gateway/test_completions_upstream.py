"""The gateway over workers that speak vLLM's completions endpoint."""

from rllm_core.testing.completions_server import CompletionsReply, CompletionsServer
from rllm_core.upstream.completions import CompletionsUpstream
from rllm_core.upstream.pool import WorkerPool


async def test_two_turns_bridge_and_a_doubtful_sample_is_marked(gateway, renderer, client_of):
    said = [*renderer.encode("yes"), *renderer.get_stop_token_ids()[:1]]
    replies = [CompletionsReply(said), CompletionsReply(said, usage_error=2)]
    async with CompletionsServer(replies) as server:
        worker = await CompletionsUpstream.connect(server.base_url, version=4)
        async with WorkerPool({"a": worker}) as pool:
            gateway.route("policy", pool, renderer=renderer)
            session = gateway.open("s", sampling={"max_tokens": 9}, seed=1)
            client = client_of(session.endpoint())
            messages = [{"role": "user", "content": "hi"}]
            first = await client.chat.completions.create(model="policy", messages=messages)
            messages += [first.choices[0].message.model_dump(), {"role": "user", "content": "ok"}]
            second = await client.chat.completions.create(model="policy", messages=messages)
            record = await session.close()
    assert first.choices[0].message.content == second.choices[0].message.content == "yes"
    one, two = record.steps
    assert two.parent == one.id
    assert server.bodies[0]["prompt"] == one.context_ids.tolist()
    path = one.context_ids + one.output_ids + two.context_ids
    assert server.bodies[1]["prompt"] == path.tolist()
    assert [one.untrainable, one.versions[0].version] == [None, 4]
    assert "usage says" in two.untrainable
    assert server.bodies[0]["max_tokens"] == 9
