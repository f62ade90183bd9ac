"""Packing, the fast engine and the plain one, against Hugging Face's own forward (fp32)."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rllm_backend_local.loading import load
from rllm_backend_local.models import Source
from rllm_backend_local.options import Options
from rllm_backend_local.packing import micro_batches, pack_rows, row_tensors
from rllm_backend_local.picking import Choice, pick
from rllm_backend_local.sampler import Sampler
from rllm_backend_local.testing import Completed, make_batch
from rllm_backend_local.trainer import Trainer

from rllm_core.algorithms.losses import LossSpec
from rllm_core.errors import ConfigError, ModelError
from rllm_core.upstream import SamplingParams

TINY = Source("tiny", None, None)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def loaded(source=TINY, **options):
    model = load(source, Options(**options))
    if options.get("mode") == "lora":
        with torch.no_grad():
            for name, parameter in model.model.named_parameters():
                if "lora_B" in name:
                    parameter.normal_(0, 0.1)
        model.engine.refresh()
    return model


def qwen(folder):
    """A model that the fast engine does not know (its projections have biases)."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=16,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=15,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return Source("qwen", str(folder), None)


def by_hugging_face(model, prompt, reply, temperature=1.0):
    with torch.no_grad():
        logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
    logp = torch.log_softmax(logits / temperature, -1)
    return [logp[i, token].item() for i, token in enumerate(reply)]


def prompts_of(source, count):
    stem = source.choices(range(16), k=9)
    tails = (source.choices(range(16), k=source.randrange(6)) for _ in range(count))
    return [(stem if source.random() < 0.6 else [1]) + tail for tail in tails]


def sample_with_joins(model, source, count, **params):
    """Requests that join at random steps: their prompts and what they got."""
    sampler = Sampler(model.engine, model.context, 8, frozenset({15}), 0)
    waiting = list(enumerate(prompts_of(source, count)))
    asked, got = dict(waiting), {call: Completed([], [], [], None) for call, _ in waiting}
    while waiting or sampler.busy:
        for _ in range(min(len(waiting), source.randrange(4))):
            call, prompt = waiting.pop()
            limit = 1 + call % 9
            sampler.add(call, prompt, SamplingParams(max_tokens=limit, seed=call, **params))
        for piece in sampler.step():
            got[piece.call].ids.extend(piece.ids)
            got[piece.call].logprobs.extend(piece.logprobs)
    return [(asked[call], got[call]) for call in asked]


@pytest.mark.parametrize("options", [{}, {"mode": "lora"}, {"mode": "lora", "lora_alpha": 3.0}])
@pytest.mark.parametrize("steady", [True, False])
def test_the_engine_equals_hugging_face_under_random_joins(options, steady):
    model = loaded(**options)
    model.engine.steady = steady
    model.engine.units = (16, 64) if steady else (1, 1)
    for prompt, reply in sample_with_joins(model, random.Random(1), 40):
        want = by_hugging_face(model.model, prompt, reply.ids)
        assert reply.logprobs == pytest.approx(want, abs=2e-5)
        scores = model.engine.score(prompt + reply.ids)
        assert scores[len(prompt) :] == pytest.approx(want, abs=2e-5)


@pytest.mark.parametrize("options", [{}, {"mode": "lora"}])
def test_the_plain_engine_equals_hugging_face(tmp_path, options):
    model = loaded(qwen(tmp_path), **options)
    assert not model.packs
    for prompt, reply in sample_with_joins(model, random.Random(2), 12):
        want = by_hugging_face(model.model, prompt, reply.ids)
        assert reply.logprobs == pytest.approx(want, abs=2e-5)


def test_a_row_is_bit_equal_whoever_shares_its_batch():
    model = loaded()
    runs = [sample_with_joins(model, random.Random(3), 30) for _ in range(1)]
    alone = []
    for call, (prompt, _) in enumerate(runs[0]):
        sampler = Sampler(model.engine, model.context, 8, frozenset({15}), 0)
        sampler.add(call, prompt, SamplingParams(max_tokens=1 + call % 9, seed=call))
        pieces = []
        while sampler.busy:
            pieces += sampler.step()
        alone.append(([p.ids[0] for p in pieces], [p.logprobs[0] for p in pieces]))
    assert [(c.ids, c.logprobs) for _, c in runs[0]] == alone


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_told(temperature):
    model = loaded()
    with torch.no_grad():
        model.base.lm_head.weight.fill_(torch.nan)
    model.engine.refresh()
    with pytest.raises(ModelError, match="logits are NaN"):
        sample_with_joins(model, random.Random(4), 2, temperature=temperature)


@pytest.mark.parametrize("top_p", [0.0, -1.0])
def test_a_choice_of_no_token_is_told(top_p):
    choices = [Choice(1.0, 1.0, 0, random.Random(0)), Choice(1.0, top_p, 0, random.Random(0))]
    with pytest.raises(ModelError, match="top_p leaves none"):
        pick(torch.zeros(2, 5), choices)
    model = loaded()
    sampler = Sampler(model.engine, model.context, 8, frozenset({15}), 0)
    with pytest.raises(ModelError, match="top_p is above 0"):
        sampler.add(0, [1], SamplingParams(top_p=top_p))
    assert not sampler.busy


def test_temperature_top_k_and_top_p():
    model = loaded()
    with torch.no_grad():
        model.base.lm_head.weight.mul_(30)
    model.engine.refresh()
    greedy = sample_with_joins(model, random.Random(4), 10, temperature=0.0)
    assert sample_with_joins(model, random.Random(4), 10, top_k=1)[3] == greedy[3]
    assert sample_with_joins(model, random.Random(4), 10, top_p=1e-6)[3] == greedy[3]
    for prompt, reply in greedy:
        assert reply.logprobs == pytest.approx(
            by_hugging_face(model.model, prompt, reply.ids), abs=5e-5
        )
    for prompt, reply in sample_with_joins(model, random.Random(4), 10, temperature=0.5, top_k=3):
        want = by_hugging_face(model.model, prompt, reply.ids, 0.5)
        assert reply.logprobs == pytest.approx(want, abs=5e-5)
        ranks = [
            sum(o > w for o in by_hugging_face_all(model.model, prompt, reply.ids, at))
            for at, w in enumerate(want_at_one(model.model, prompt, reply.ids))
        ]
        assert max(ranks) < 3


def by_hugging_face_all(model, prompt, reply, at):
    with torch.no_grad():
        logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 + at]
    return torch.log_softmax(logits, -1).tolist()


def want_at_one(model, prompt, reply):
    return by_hugging_face(model, prompt, reply, 1.0)


def test_sampling_follows_the_distribution():
    model = loaded()
    with torch.no_grad():
        model.base.lm_head.weight.mul_(8)
    model.engine.refresh()
    sampler = Sampler(model.engine, model.context, 64, frozenset({15}), 0)
    for call in range(4000):
        sampler.add(call, [1, 10], SamplingParams(max_tokens=1))
    counts = np.zeros(16)
    while sampler.busy:
        for piece in sampler.step():
            counts[piece.ids[0]] += 1
    want = np.exp(by_hugging_face_all(model.model, [1, 10], [0], 0))
    assert np.abs(counts / 4000 - want).max() < 4 * np.sqrt(0.25 / 4000)


alike = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=10)


@given(alike, st.integers(1, 40), st.sampled_from([0, 1, 64]))
@settings(max_examples=60, deadline=None)
def test_packing_keeps_every_sequence(sequences, limit, width):
    rows = pack_rows(sequences, limit, width)
    assert sorted(m for r in rows for m in r.members) == list(range(len(sequences)))
    for batch in micro_batches(rows, limit):
        ids, positions, mask = row_tensors(batch)
        assert len(batch) == 1 or ids.numel() <= limit
        for b, row in enumerate(batch):
            for member, path in zip(row.members, row.paths, strict=True):
                assert ids[b, path].tolist() == sequences[member]
                assert positions[b, path].tolist() == list(range(len(path)))
                if mask is not None:
                    for j, place in enumerate(path):
                        assert mask[b, 0, place].nonzero()[:, 0].tolist() == sorted(path[: j + 1])


def batch_of(seed):
    source = random.Random(seed)
    prompts = [p for p in prompts_of(source, 4) for _ in range(4)]
    replies = []
    for _ in prompts:
        ids = source.choices(range(16), k=source.randrange(1, 9))
        replies.append(Completed(ids, [-2.5 + source.random() for _ in ids], [], "length"))
    batch = make_batch(prompts, replies, [source.gauss(0, 1) for _ in prompts])
    batch.temperature_S[::3] = 0.7
    return batch


def gradients(model, batch, **changes):
    settings = {"micro_tokens": 2048, "packs": True, **changes}
    trainer = Trainer(model.model, model.base, bf16=False, **settings)
    model.model.zero_grad()
    out = trainer.forward_backward(batch, LossSpec())
    grads = [p.grad.clone() for p in trainer.parameters if p.grad is not None]
    return out, torch.cat([g.flatten() for g in grads])


@pytest.mark.parametrize("options", [{}, {"mode": "lora"}, {"gradient_checkpointing": True}])
@pytest.mark.parametrize("micro", [2048, 40])
def test_packed_rows_equal_separate_ones(options, micro):
    model, batch = loaded(**options), batch_of(7)
    plain, plain_grad = gradients(
        loaded(**{k: v for k, v in options.items() if k == "mode"})
        if "gradient_checkpointing" in options
        else model,
        batch,
        packs=False,
        micro_tokens=1,
    )
    packed, packed_grad = gradients(model, batch, micro_tokens=micro)
    assert packed.logprobs == pytest.approx(plain.logprobs, abs=1e-5)
    assert packed.loss == pytest.approx(plain.loss, abs=1e-5)
    error = (packed_grad - plain_grad).norm() / plain_grad.norm()
    assert error < 1e-5
    trainer = Trainer(model.model, model.base, False, micro, True)
    assert trainer.forward(batch).logprobs == pytest.approx(plain.logprobs, abs=1e-5)


def test_chunked_logits_equal_whole_ones(monkeypatch):
    model, batch = loaded(), batch_of(8)
    whole, whole_grad = gradients(model, batch)
    monkeypatch.setattr("rllm_backend_local.trainer._LOGITS_AT_ONCE", 5)
    chunked, chunked_grad = gradients(model, batch)
    assert chunked.logprobs == pytest.approx(whole.logprobs, abs=1e-6)
    assert (chunked_grad - whole_grad).norm() / whole_grad.norm() < 1e-5


def test_the_loss_is_the_weighted_sum_of_its_terms():
    model, batch = loaded(), batch_of(9)
    out, _ = gradients(model, batch)
    loss = LossSpec()
    lp, old, advantage = (
        torch.tensor(a[batch.target_T]) for a in (out.logprobs, batch.logprobs_T, batch.advantage_T)
    )
    terms = loss.policy.terms(lp, old, advantage) * torch.tensor(batch.weight_T[batch.target_T])
    assert out.loss == pytest.approx(terms.sum().item(), abs=1e-5)


def test_memory_that_is_not_there_is_an_error_before_it_is_taken(monkeypatch):
    model = loaded()
    monkeypatch.setattr("rllm_backend_local.trainer.available_memory", lambda: 1000)
    with pytest.raises(ConfigError, match="training needs"):
        gradients(model, batch_of(7))
    monkeypatch.setattr("rllm_backend_local.memory.available_memory", lambda: 1000)
    with pytest.raises(ConfigError, match="does not fit"):
        loaded()
