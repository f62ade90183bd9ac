"""What every backend must keep to, as tests: subclass `BackendConformance`.

It learns; what it computes in training is what it sampled with; weights reach the sampler by
`publish` alone, under versions that only rise; a checkpoint continues as if nothing had been;
what it cannot honour it refuses, and a number that is none changes nothing.

The backend is started once for the class and put back to its first weights for each test.
"""

import asyncio
import math
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
import pytest_asyncio
from attrs import evolve, frozen

from rllm_core.algorithms.losses import LossSpec, PolicyLoss, PPOClip
from rllm_core.backend import Backend, LoadedModel, Model, ModelSpec, OptimParams
from rllm_core.backend.batch import TokenBatch
from rllm_core.testing.tokens import Completion, complete, complete_all, make_batch
from rllm_core.upstream import TokenPrompt, Upstream

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["BackendConformance"]

LOSS = LossSpec(PPOClip())


@frozen
class _Unheard(PolicyLoss):
    name: ClassVar[str] = "a_loss_that_nobody_has"


def standardised(rewards: Sequence[float]) -> list[float]:
    """Rewards of one group → advantages; none where they are all equal."""
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((r - mean) ** 2 for r in rewards) / len(rewards))
    return [0.0 if deviation == 0 else (r - mean) / deviation for r in rewards]


@pytest.mark.asyncio(loop_scope="class")
class BackendConformance:
    """Subclass it, set `backend`, and pytest collects the tests."""

    backend: ClassVar[type[Backend]]
    options: ClassVar[Mapping[str, Any]] = {}
    model: ClassVar[str] = "tiny"
    """The model's name, as users give it: the smallest that there is."""
    prompts: ClassVar[Sequence[str]] = ("1=", "2=", "7=")
    """Texts that the model's tokenizer knows, each with a first token of its own."""
    learning_rate: ClassVar[float | None] = None
    """For the toy task; None: the backend's own."""
    steps: ClassVar[int] = 40
    """Steps in which the toy task must be learnt."""
    reward: ClassVar[float] = 0.8
    """What the toy task must come to; it begins near a half."""
    tolerance: ClassVar[float] = 1e-4
    """How far logprobs of sampler and trainer may be apart (nats)."""

    @pytest_asyncio.fixture(scope="class", loop_scope="class", autouse=True)
    @classmethod
    async def _started(cls, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[None]:
        backend = cls.make()
        first = tmp_path_factory.mktemp("conformance") / "first"
        try:
            await backend.start()
            loaded = await backend.model("policy", ModelSpec(cls.model))
            await loaded.model.save(first)
            cls._loaded, cls._first = loaded, first
            yield
        finally:
            await backend.close()
            await backend.close()  # safe to call twice

    _loaded: ClassVar[LoadedModel]
    _first: ClassVar[Path]

    @classmethod
    def make(cls) -> Backend:
        """A new backend, not started."""
        return cls.backend(cls.backend.Options(**cls.options))

    async def fresh(self) -> Model:
        """The model at its first weights."""
        await self._loaded.model.load(self._first)
        return self._loaded.model

    def encoded(self, count: int) -> list[list[int]]:
        """`count` prompts as token ids, the texts in turn."""
        texts = [self.prompts[i % len(self.prompts)] for i in range(count)]
        return [list(self._loaded.renderer.encode(text)) for text in texts]

    def optim(self) -> OptimParams:
        """The optimizer's settings in these tests."""
        return OptimParams(self.learning_rate or self._loaded.learning_rate)

    async def sampled(self, model: Model, *, count: int = 6, **params: Any) -> TokenBatch:
        """A batch of short completions, half of them to be preferred."""
        prompts = self.encoded(count)
        params = {"max_tokens": 3, "seed": 1, **params}
        completions = await complete_all(await model.publish(0), prompts, **params)
        advantages = [1.0 if i % 2 else -1.0 for i in range(count)]
        temperature = params.get("temperature", 1.0)
        return make_batch(prompts, completions, advantages, temperature=temperature)

    async def logprobs(self, model: Model, batch: TokenBatch) -> "NDArray[np.float32]":
        """Logprobs of the batch under the current weights."""
        import numpy as np

        return np.array((await model.forward(batch)).logprobs)

    async def step(self, model: Model, batch: TokenBatch, loss: LossSpec = LOSS) -> float:
        """One optimizer step; the loss before it."""
        outputs = await model.forward_backward(batch, loss)
        await model.optim_step(self.optim())
        return float(outputs.loss)

    async def toy_step(self, model: Model, upstream: Upstream, number: int) -> float:
        """One step towards tokens with even ids; the share of them."""
        prompts = sorted(self.encoded(16 * len(self.prompts)))
        completions = await complete_all(upstream, prompts, seed=number, max_tokens=1)
        rewards = [1.0 - c.ids[0] % 2 for c in completions]
        groups = (rewards[i : i + 16] for i in range(0, len(rewards), 16))
        advantages = [a for group in groups for a in standardised(group)]
        await self.step(model, make_batch(prompts, completions, advantages))
        return sum(rewards) / len(rewards)

    # --- it learns

    async def test_reward_rises_on_a_toy_task(self) -> None:
        """Sampling even token ids is rewarded, step by step, and happens more often."""
        model, rewards = await self.fresh(), list[float]()
        for number in range(self.steps):
            rewards.append(await self.toy_step(model, await model.publish(number), number))
            if len(rewards) > 8 and sum(rewards[-4:]) / 4 > 0.9:
                break
        begun, ended = sum(rewards[:4]) / 4, sum(rewards[-4:]) / 4
        assert ended > max(self.reward, begun + 0.1), f"from {begun:.2f} to {ended:.2f}"

    async def test_the_loss_goes_down(self) -> None:
        """Steps on one batch make its preferred tokens likelier, and the others less likely."""
        model = await self.fresh()
        batch = await self.sampled(model)
        before = await self.logprobs(model, batch)
        losses = [await self.step(model, batch) for _ in range(3)]
        assert losses[-1] < losses[0]
        change = (await self.logprobs(model, batch) - before) * batch.advantage_T
        assert change.sum() > 0

    # --- what it computes is what it sampled with

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    async def test_forward_gives_the_samplers_logprobs(self, temperature: float) -> None:
        """The ratio of an untrained policy is one: at any temperature, at every token."""
        model = await self.fresh()
        batch = await self.sampled(model, temperature=temperature)
        apart = abs(await self.logprobs(model, batch) - batch.logprobs_T)
        assert apart.max() < self.tolerance

    async def test_score_gives_the_forwards_logprobs(self) -> None:
        """At temperature 1; the first id is predicted from nothing, so it has 0."""
        model = await self.fresh()
        batch = await self.sampled(model)
        upstream = await model.publish(0)
        computed = await self.logprobs(model, batch)
        for span in batch.spans():
            scores = await upstream.score(TokenPrompt(array("i", batch.ids_T[span].tolist())))
            assert len(scores) == span.stop - span.start
            assert scores[0] == 0
            target = batch.target_T[span]
            assert abs(computed[span] - scores)[target].max() < self.tolerance

    async def test_completions_end_where_they_must(self) -> None:
        """At `max_tokens`, or with a stop token, which is then the last id."""
        upstream = await (await self.fresh()).publish(0)
        prompt = self.encoded(1)[0]
        cut = await complete(upstream, prompt, max_tokens=4, seed=3, stop_token_ids=())
        assert cut.finish in {"length", "stop"}
        assert len(cut.ids) <= 4
        stopped = await complete(upstream, prompt, max_tokens=4, seed=3, stop_token_ids=cut.ids[:1])
        assert (stopped.ids, stopped.finish) == (cut.ids[:1], "stop")

    async def test_sampling_repeats_by_its_seed(self) -> None:
        """And the likeliest token, at temperature 0, needs none."""
        upstream = await (await self.fresh()).publish(0)
        prompt = self.encoded(1)[0]
        for params in ({"seed": 5}, {"temperature": 0.0}):
            tokens = [(await complete(upstream, prompt, max_tokens=4, **params)).ids for _ in "ab"]
            assert tokens[0] == tokens[1]
        others = [(await complete(upstream, prompt, max_tokens=4, seed=s)).ids for s in range(8)]
        assert len(set(map(tuple, others))) > 1

    # --- masks and weights

    async def test_only_targets_have_logprobs_and_gradients(self) -> None:
        """Without a target nothing moves; with one, its sequence alone does."""
        model = await self.fresh()
        batch = await self.sampled(model)
        before = await self.logprobs(model, batch)
        assert not before[~batch.target_T].any()
        await self.step(model, _masked(batch, keep=0))
        assert (await self.logprobs(model, batch) == before).all()
        await self.step(model, _masked(batch, keep=1))
        first, alone = next(batch.spans()), await self.logprobs(model, batch)
        assert (alone[first] != before[first]).any()
        model = await self.fresh()
        await self.step(model, _only(batch, 1))
        assert abs(await self.logprobs(model, batch) - alone).max() < self.tolerance

    async def test_weights_scale_the_loss(self) -> None:
        """The loss is `sum(weight · loss_t)`: nothing is averaged again."""
        model = await self.fresh()
        batch = await self.sampled(model)
        batch = evolve(batch, advantage_T=abs(batch.advantage_T))
        once = (await model.forward_backward(batch, LOSS)).loss
        twice = (
            await model.forward_backward(evolve(batch, weight_T=2 * batch.weight_T), LOSS)
        ).loss
        assert once == pytest.approx(-1.0, abs=1e-3)
        assert twice == pytest.approx(2 * once, rel=1e-3)
        await model.optim_step(evolve(self.optim(), learning_rate=0.0))

    async def test_an_empty_batch_is_no_trouble(self) -> None:
        """No sequences: no loss, and nothing moves."""
        model = await self.fresh()
        batch = await self.sampled(model)
        before = await self.logprobs(model, batch)
        empty = make_batch([], [], [])
        assert len((await model.forward(empty)).logprobs) == 0
        assert await self.step(model, empty) == 0.0
        assert (await self.logprobs(model, batch) == before).all()

    async def test_a_step_of_rate_zero_moves_nothing_and_clears_the_gradient(self) -> None:
        """So that a gradient is never counted twice."""
        model = await self.fresh()
        batch = await self.sampled(model)
        before = await self.logprobs(model, batch)
        await model.forward_backward(batch, LOSS)
        metrics = await model.optim_step(evolve(self.optim(), learning_rate=0.0))
        assert metrics["grad_norm"] > 0
        assert (await self.logprobs(model, batch) == before).all()
        assert (await model.optim_step(self.optim()))["grad_norm"] == 0

    @pytest.mark.parametrize("array_name", ["advantage_T", "logprobs_T", "weight_T"])
    async def test_a_number_that_is_none_is_refused(self, array_name: str) -> None:
        """NaN raises, and neither weights nor the next step's gradient have any of it."""
        model = await self.fresh()
        batch = await self.sampled(model)
        before = await self.logprobs(model, batch)
        broken = getattr(batch, array_name).copy()
        broken[batch.target_T.nonzero()[0][-1]] = float("nan")
        with pytest.raises(Exception, match=r"(?i)finite|nan"):
            await model.forward_backward(evolve(batch, **{array_name: broken}), LOSS)
        await model.optim_step(self.optim())
        assert (await self.logprobs(model, batch) == before).all()

    # --- versions and checkpoints

    async def test_weights_reach_the_sampler_by_publish_alone(self) -> None:
        """And each publish's upstream samples at its own version."""
        model = await self.fresh()
        batch = await self.sampled(model)
        old = await model.publish(4)
        prompt = TokenPrompt(array("i", batch.ids_T[next(batch.spans())].tolist()))
        scores = list(await old.score(prompt))
        await self.step(model, batch)
        assert list(await old.score(prompt)) == scores
        new = await model.publish(5)
        assert list(await new.score(prompt)) != scores
        assert (old.version, new.version) == (4, 5)
        completion = await complete(new, self.encoded(1)[0], max_tokens=4)
        assert set(completion.versions) == {5}

    async def test_versions_never_fall_within_a_completion(self) -> None:
        """Weights may change under one that is under way; each piece says which made it."""
        model = await self.fresh()
        upstream = await model.publish(7)
        running = asyncio.ensure_future(complete(upstream, self.encoded(1)[0], max_tokens=40))
        await asyncio.sleep(0)
        await model.publish(8)
        versions = (await running).versions
        assert versions == sorted(versions)
        assert set(versions) <= {7, 8}

    async def test_a_checkpoint_continues_as_if_nothing_had_been(self, tmp_path: Path) -> None:
        """Weights and optimizer: the same step from it has the same result, to the bit."""
        model = await self.fresh()
        batch = await self.sampled(model)
        await self.step(model, batch)
        await model.save(tmp_path / "saved")
        after = []
        for _ in range(2):
            await model.load(tmp_path / "saved")
            await self.step(model, batch)
            after.append(await self.logprobs(model, batch))
        assert (after[0] == after[1]).all()

    async def test_calls_are_carried_out_in_order(self) -> None:
        """They may be sent together and awaited afterwards."""
        model = await self.fresh()
        batch = await self.sampled(model)
        await self.step(model, batch)
        apart = await self.logprobs(model, batch)
        model = await self.fresh()
        calls = model.forward_backward(batch, LOSS), model.optim_step(self.optim())
        together = model.forward(batch)
        for call in calls:
            await call
        assert (abs((await together).logprobs - apart) <= self.tolerance).all()

    async def test_an_export_is_a_directory_with_files(self, tmp_path: Path) -> None:
        """Which others can load."""
        model = await self.fresh()
        await model.export(tmp_path / "exported")
        assert any(path.stat().st_size for path in (tmp_path / "exported").iterdir())

    # --- it is honest

    async def test_what_it_declares_changes_something(self) -> None:
        """PPO's clip moves weights, and leaves tokens outside of it where they are."""
        declared = self.backend.capabilities.losses
        assert declared
        if "ppo_clip" not in declared:
            return
        model = await self.fresh()
        batch = await self.sampled(model)
        batch = evolve(batch, advantage_T=abs(batch.advantage_T))
        # as if the tokens had been half as likely when they were sampled: their ratio is two
        batch = evolve(batch, logprobs_T=batch.logprobs_T - math.log(2) * batch.target_T)
        before = await self.logprobs(model, batch)
        await self.step(model, batch, LossSpec(PPOClip(0.2, 0.5)))
        assert (await self.logprobs(model, batch) == before).all()
        await self.step(model, batch, LossSpec(PPOClip(0.2, 1.5)))
        assert (await self.logprobs(model, batch) != before).any()

    async def test_what_it_does_not_declare_is_refused(self) -> None:
        """A loss, or a role, that it does not know."""
        model = await self.fresh()
        batch = await self.sampled(model)
        with pytest.raises(Exception, match="a_loss_that_nobody_has"):
            await model.forward_backward(batch, LossSpec(_Unheard()))
        backend = self.make()
        try:
            with pytest.raises(Exception, match="no_such_role"):
                await backend.model("no_such_role", ModelSpec(self.model))
        finally:
            await backend.close()  # safe without a start

    async def test_its_capabilities_are_consistent(self) -> None:
        """A trainable backend has a way to train, and holds the policy."""
        declared = self.backend.capabilities
        assert "policy" in declared.roles
        assert not declared.trains or (declared.full or declared.lora)


def _masked(batch: TokenBatch, *, keep: int) -> TokenBatch:
    """The batch with the targets of its first `keep` sequences alone."""
    import numpy as np

    end = int(batch.offsets_S1[keep])
    mask = np.arange(batch.tokens) < end
    arrays = ("target_T", "logprobs_T", "weight_T", "advantage_T")
    return evolve(batch, **{name: getattr(batch, name) * mask for name in arrays})


def _only(batch: TokenBatch, keep: int) -> TokenBatch:
    """The first `keep` sequences as a batch of their own, weighted as before."""
    spans = list(batch.spans())[:keep]
    prompts, completions = [], []
    for span in spans:
        begin = span.start + int(batch.target_T[span].argmax())
        prompts.append(batch.ids_T[span.start : begin].tolist())
        ids, logprobs = (a[begin : span.stop].tolist() for a in (batch.ids_T, batch.logprobs_T))
        completions.append(Completion(ids, logprobs, [0] * len(ids), "length"))
    advantages = [float(batch.advantage_T[span.stop - 1]) for span in spans]
    alone = make_batch(prompts, completions, advantages)
    return evolve(alone, weight_T=batch.weight_T[: alone.tokens])
