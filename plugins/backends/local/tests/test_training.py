"""Training through the worker: it learns, it repeats, it survives bad numbers."""

import asyncio
import random
from array import array
from contextlib import aclosing

import numpy as np
import pytest
from rllm_backend_local.testing import Completed, complete_all, make_batch, standardised

from rllm_core.algorithms.losses import LossSpec, PPOClip
from rllm_core.backend import OptimParams
from rllm_core.errors import BackendError, ConfigError, ModelError
from rllm_core.upstream import SamplingParams, TokenPrompt

pytestmark = pytest.mark.asyncio(loop_scope="module")

LOSS = LossSpec(PPOClip(0.2, 0.28))
EQUALS = 10
NEVER = (99,)  # no such token


def copied(prompt, token):
    return float(token == prompt[0])


def a_seven(_, token):
    return float(token == 7)


async def grpo(model, steps, *, reward=copied, enough=2.0, seed=0, rate=3e-3):
    """The prompt is a digit and '='; one token is sampled and rewarded."""
    source = random.Random(seed)
    upstream, curve = await model.publish(0), []
    for step in range(steps):
        prompts = [[d, EQUALS] for d in source.choices(range(10), k=8) for _ in range(8)]
        out = await complete_all(upstream, prompts, seed=step, max_tokens=1)
        rewards = [reward(p, o.ids[0]) for o, p in zip(out, prompts, strict=True)]
        assert {v for o in out for v in o.versions} == {step}
        batch = make_batch(prompts, out, standardised(rewards, 8))
        done = model.forward_backward(batch, LOSS), model.optim_step(OptimParams(rate))
        for call in done:
            await call
        upstream = await model.publish(step + 1)
        curve.append(sum(rewards) / len(rewards))
        if len(curve) >= 10 and np.mean(curve[-10:]) >= enough:
            break
    return curve


async def weights_of(model, folder):
    from safetensors.torch import load_file

    await model.save(folder)
    return {k: v.numpy() for k, v in load_file(folder / "weights.safetensors").items()}


async def test_grpo_learns_to_copy_a_digit(start):
    curve = await grpo(await start(), 200, enough=0.8)
    assert np.mean(curve[:5]) < 0.3
    assert np.mean(curve[-10:]) >= 0.8


async def test_lora_learns_to_say_seven(start):
    model = await start(mode="lora", lora_rank=8)
    curve = await grpo(model, 60, reward=a_seven, enough=0.17, rate=1e-2)
    assert np.mean(curve[:3]) < 0.12
    assert np.mean(curve[-10:]) >= 0.17  # a frozen random head allows about 0.22


async def test_save_does_not_write_over_what_is_there(start, tmp_path):
    model = await start()
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        await model.save(tmp_path / "taken")
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


async def test_a_checkpoint_of_another_mode_is_refused(start, tmp_path):
    await (await start(mode="lora", lora_rank=8)).save(tmp_path / "lora")
    with pytest.raises(ConfigError, match="another model"):
        await (await start()).load(tmp_path / "lora")


async def test_same_seeds_give_bit_equal_weights(start, tmp_path):
    runs = []
    for name in ("a", "b"):
        model = await start()
        await grpo(model, 5)
        runs.append(await weights_of(model, tmp_path / name))
    assert all(np.array_equal(runs[0][k], runs[1][k]) for k in runs[0])


async def test_save_and_load_continue_bit_equally(start, tmp_path):
    model = await start()
    await grpo(model, 3)
    await model.save(tmp_path / "there")
    await grpo(model, 1, seed=9)
    once = await weights_of(model, tmp_path / "once")
    await model.load(tmp_path / "there")
    await grpo(model, 1, seed=9)
    again = await weights_of(model, tmp_path / "again")
    assert all(np.array_equal(once[k], again[k]) for k in once)


def simple_batch(**changes):
    prompts = [[1, EQUALS], [2, EQUALS]]
    replies = [Completed([1, 3], [-2.0, -2.0], [], "length"), Completed([5], [-3.0], [], "length")]
    batch = make_batch(prompts, replies, [1.0, -1.0])
    for name, value in changes.items():
        getattr(batch, name)[:] = value
    return batch


@pytest.mark.parametrize("broken", ["weight_T", "advantage_T", "logprobs_T"])
async def test_a_loss_that_is_not_finite_names_its_sequence_and_changes_nothing(
    start, tmp_path, broken
):
    model = await start()
    before = await weights_of(model, tmp_path / "before")
    batch = simple_batch()
    getattr(batch, broken)[-1] = np.nan
    with pytest.raises(BackendError, match="episode-1"):
        await model.forward_backward(batch, LOSS)
    assert await model.optim_step(OptimParams(1e-2)) == {"grad_norm": 0.0}
    after = await weights_of(model, tmp_path / "after")
    assert all(np.array_equal(before[k], after[k]) for k in before)


async def test_sequences_without_gradient_are_left_out(start):
    model = await start()
    full = await model.forward(simple_batch())
    batch = simple_batch()
    batch.advantage_T[batch.offsets_S1[1] :] = 0
    out = await model.forward_backward(batch, LOSS)
    assert out.metrics["trained_sequences"] == 1
    assert out.metrics["trained_targets"] == 2
    assert out.logprobs[2:4] == pytest.approx(full.logprobs[2:4], abs=1e-6)
    assert not out.logprobs[4:].any()


async def test_nothing_to_train_moves_nothing(start, tmp_path):
    model = await start()
    before = await weights_of(model, tmp_path / "before")
    await model.forward_backward(simple_batch(advantage_T=0.0), LOSS)
    assert (await model.optim_step(OptimParams(1e-2)))["grad_norm"] == 0.0
    after = await weights_of(model, tmp_path / "after")
    assert all(np.array_equal(before[k], after[k]) for k in before)


async def test_an_export_is_a_directory_that_transformers_and_we_load(start, tmp_path):
    import torch
    from rllm_backend_local.models import find
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = await start()
    await grpo(model, 2)
    want = await model.forward(simple_batch())
    await model.export(tmp_path / "out")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    logp = torch.log_softmax(loaded(torch.tensor([[1, EQUALS, 1, 3]])).logits[0], -1)
    assert want.logprobs[2:4] == pytest.approx([logp[1, 1].item(), logp[2, 3].item()], abs=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer("0b\n", add_special_tokens=False)["input_ids"] == [0, 13, 14]
    assert (await find(str(tmp_path / "out"), 1)).renderer == ("tiny", None)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
async def test_an_adapter_is_exported_as_peft_reads_it(start, tmp_path):
    import torch
    from peft import PeftModel
    from rllm_backend_local import tiny

    model = await start(mode="lora", lora_rank=8)
    await grpo(model, 3, rate=1e-2)
    want = await model.forward(simple_batch())
    await model.export(tmp_path / "adapter")
    loaded = PeftModel.from_pretrained(tiny.make(0), tmp_path / "adapter")
    logp = torch.log_softmax(loaded(torch.tensor([[1, EQUALS, 1]])).logits[0], -1)
    assert want.logprobs[2] == pytest.approx(logp[1, 1].item(), abs=1e-5)
    again = await (await start(str(tmp_path / "adapter"))).forward(simple_batch())
    assert again.logprobs == pytest.approx(want.logprobs, abs=1e-5)


async def test_score_is_the_forward_at_the_published_weights(start):
    model = await start()
    upstream = await model.publish(0)
    batch = simple_batch()
    want = await model.forward(batch)
    scores = await upstream.score(TokenPrompt(array("i", [1, EQUALS, 1, 3])))
    assert scores[0] == 0
    assert list(scores[2:]) == pytest.approx(want.logprobs[2:4], abs=1e-5)
    await model.forward_backward(batch, LOSS)
    await model.optim_step(OptimParams(1e-2))
    again = await upstream.score(TokenPrompt(array("i", [1, EQUALS, 1, 3])))
    assert list(again) == list(scores), "weights reach the sampler by publish alone"


async def test_completions_in_flight_go_on_with_the_new_weights(start):
    model = await start()
    upstream = await model.publish(3)
    versions = []
    async with asyncio.timeout(60):
        prompt, params = (
            TokenPrompt(array("i", [1])),
            SamplingParams(max_tokens=200, stop_token_ids=NEVER),
        )
        async for piece in upstream.sample(prompt, params):
            versions += [piece.version] * len(piece.ids)
            if len(versions) == 20:
                assert (await model.publish(4)).version == 4
    assert set(versions) == {3, 4}
    assert versions == sorted(versions)


async def test_leaving_a_completion_aborts_it(start):
    model = await start(max_rows=1)
    upstream = await model.publish(0)
    prompt = TokenPrompt(array("i", [1]))
    async with asyncio.timeout(60):
        async with aclosing(
            upstream.sample(prompt, SamplingParams(max_tokens=250, stop_token_ids=NEVER))
        ) as pieces:
            await anext(pieces)
        start_of_next = await anext(upstream.sample(prompt, SamplingParams(max_tokens=1)))
    assert start_of_next.finish == "length"


async def test_what_the_sampler_cannot_honour_is_refused(start):
    upstream = await (await start()).publish(0)
    with pytest.raises(ModelError, match="context window"):
        await complete_all(upstream, [[1] * 256])
    with pytest.raises(ModelError, match="empty"):
        await complete_all(upstream, [[]])
