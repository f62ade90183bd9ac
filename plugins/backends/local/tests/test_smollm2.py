"""The small real model (135M parameters), through the worker."""

import asyncio
from array import array

import pytest
from rllm_backend_local import LocalBackend, Options
from rllm_backend_local.testing import complete_all, make_batch

from rllm_core.algorithms.losses import LossSpec
from rllm_core.backend import ModelSpec, OptimParams
from rllm_core.upstream import TokenPrompt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.mark.parametrize("mode", ["full", "lora"])
async def test_it_answers_and_trains(smollm2, mode):
    from rllm_backend_local.models import find
    from tokenizers import Tokenizer

    place = await find(smollm2, 900)
    tokenizer = Tokenizer.from_file(str(place.path / "tokenizer.json"))
    text = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    prompt = tokenizer.encode(text, add_special_tokens=False).ids
    backend = LocalBackend(Options(mode=mode, call_timeout=300.0))
    try:
        async with asyncio.timeout(600):
            await backend.start()
            model = (await backend.model("policy", ModelSpec(smollm2))).model
            upstream = await model.publish(0)
            (greedy,) = await complete_all(upstream, [prompt], temperature=0.0, max_tokens=24)
            assert "Paris" in tokenizer.decode(greedy.ids)
            replies = await complete_all(upstream, [prompt] * 4, seed=1, max_tokens=8)
            batch = make_batch([prompt] * 4, replies, [1.0, -0.5, -0.5, 0.0])
            out = await model.forward_backward(batch, LossSpec())
            assert out.metrics["abs_logprob_gap"] < 0.15
            assert (await model.optim_step(OptimParams(1e-4)))["grad_norm"] > 0
            whole = TokenPrompt(array("i", [*prompt, *replies[0].ids]))
            before = sum((await upstream.score(whole))[len(prompt) :])
            upstream = await model.publish(1)
            after = sum((await upstream.score(whole))[len(prompt) :])
            assert after > before
    finally:
        await backend.close()
