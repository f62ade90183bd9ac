"""The trainer: fp32 master weights, AdamW, packed rows, logits only where they are needed.

It minimises `sum(weight · loss_t)` over the targets of a batch and averages nothing. A
sequence whose advantages or weights are all zero carries no gradient and is left out of the
forward pass.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from attrs import define, field
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rllm_backend_local.memory import available_memory
from rllm_backend_local.packing import Row, micro_batches, pack_rows, row_tensors
from rllm_backend_local.targets import Part, Targets, find_targets
from rllm_core.algorithms.losses import LossSpec
from rllm_core.backend import OptimParams, Outputs
from rllm_core.backend.batch import TokenBatch
from rllm_core.errors import BackendError, ConfigError

__all__ = ["Trainer"]

_LOGITS_AT_ONCE = 2048


@define
class Trainer:
    """One model's gradients and optimizer.

    `model` is the Hugging Face causal LM (or its PEFT wrapping), `base` the causal LM itself,
    `packs` whether rows may be tries (the model honours a mask and positions of ours).
    """

    model: Any
    base: Any
    bf16: bool
    micro_tokens: int
    packs: bool
    optimizer: Any = None
    pending: list[str] = field(factory=list)

    @property
    def parameters(self) -> list[Tensor]:
        """What is trained."""
        return [p for p in self.model.parameters() if p.requires_grad]

    def forward(self, batch: TokenBatch) -> Outputs:
        """Logprobs of all targets; no gradients."""
        logprobs_T = torch.zeros(batch.tokens)
        with torch.no_grad():
            for targets_N, lp_N in self._micro(batch, range(len(batch))):
                logprobs_T[targets_N] = lp_N
        return Outputs(logprobs_T.numpy())

    def forward_backward(self, batch: TokenBatch, loss: LossSpec) -> Outputs:
        """Accumulate gradients; metrics are means over the targets that were computed."""
        if self.optimizer is None:
            self._demand_memory()
        unknown = set(batch.streams) - {"old"}
        if unknown:
            raise BackendError(f"the local backend does not know streams {sorted(unknown)}")
        active = [s for s, span in enumerate(batch.spans()) if _carries_gradient(batch, span)]
        old_T = torch.tensor(batch.streams.get("old", batch.logprobs_T))
        weight_T, advantage_T = torch.tensor(batch.weight_T), torch.tensor(batch.advantage_T)
        logprobs_T = torch.zeros(batch.tokens)
        total, sums, count = 0.0, dict[str, float](), 0
        for at_N, lp_N in self._micro(batch, active):
            terms_N = loss.policy.terms(lp_N, old_T[at_N], advantage_T[at_N]) * weight_T[at_N]
            self._demand_finite(batch, at_N, terms_N)
            value = terms_N.sum()
            value.backward()
            total += value.item()
            logprobs_T[at_N] = lp_N.detach()
            for name, values in loss.policy.metrics(lp_N.detach(), old_T[at_N]).items():
                sums[name] = sums.get(name, 0.0) + float(values.sum())
            count += len(at_N)
        self.pending += [batch.names_S[s] for s in active]
        means = {name: value / count for name, value in sums.items()}
        counts = {"trained_sequences": float(len(active)), "trained_targets": float(count)}
        return Outputs(logprobs_T.numpy(), total, means | counts)

    def optim_step(self, params: OptimParams) -> Mapping[str, float]:
        """Clip, step, clear. Without accumulated gradients nothing moves."""
        parameters = [p for p in self.parameters if p.grad is not None]
        if not parameters:
            return {"grad_norm": 0.0}
        most = params.grad_clip if params.grad_clip > 0 else math.inf
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, most))
        names, self.pending = self.pending, []
        if not math.isfinite(norm):
            self.model.zero_grad(set_to_none=True)
            raise BackendError(
                f"the gradient's norm is {norm}; the weights are as before. It was accumulated "
                f"over {len(names)} sequences: {', '.join(names[:5])}"
            )
        optimizer = self.adamw()
        for group in optimizer.param_groups:
            group["lr"], group["eps"] = params.learning_rate, params.eps
            group["betas"] = params.beta1, params.beta2
            group["weight_decay"] = params.weight_decay
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"grad_norm": norm}

    def adamw(self) -> torch.optim.AdamW:
        """The optimizer, made when it is first needed: evaluation does without."""
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(self.parameters, fused=True)
        return self.optimizer

    def _micro(self, batch: TokenBatch, members: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
        """For each micro-batch the indices of its targets in the batch, and their logprobs."""
        every = list(batch.spans())
        spans = [every[s] for s in members]
        sequences = [batch.ids_T[span].tolist() for span in spans]
        width = self.base.config.hidden_size if self.packs else 0
        for rows in micro_batches(
            pack_rows(sequences, self.micro_tokens, width), self.micro_tokens
        ):
            targets = find_targets(batch, rows, spans, max(len(r.ids) for r in rows))
            if targets.found:
                yield torch.tensor(targets.indices), self._logprobs(rows, targets)

    def _logprobs(self, rows: Sequence[Row], targets: Targets) -> Tensor:
        """Logprob of each target, at the temperature of its sequence."""
        ids, positions, mask = row_tensors(rows)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            if not self.packs:
                logits = self._all_logits(ids, rows).flatten(0, 1)
                (part,) = targets.parts(len(logits) * len(rows))
                return part.logprobs(logits[part.at_P])
            hidden = self._hidden(ids, positions, mask)
            parts = list(targets.parts(_LOGITS_AT_ONCE))
            if len(parts) == 1:
                return self._head(hidden, parts[0])
            # The block [positions, vocabulary] is the largest of all: not kept, made again.
            return torch.cat(
                [checkpoint(self._head, hidden, part, use_reentrant=False) for part in parts]
            )

    def _head(self, hidden: Tensor, part: Part) -> Tensor:
        return part.logprobs(self.base.lm_head(hidden[part.at_P]))

    def _hidden(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        output = self.base.model(
            input_ids=ids, position_ids=positions, attention_mask=mask, use_cache=False
        )
        hidden: Tensor = output.last_hidden_state
        return hidden.flatten(0, 1)

    def _all_logits(self, ids: Tensor, rows: Sequence[Row]) -> Tensor:
        lengths = torch.tensor([len(r.ids) for r in rows])
        attended = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        logits: Tensor = self.model(input_ids=ids, attention_mask=attended, use_cache=False).logits
        return logits

    def _demand_memory(self) -> None:
        """Refuse before the first gradient: later the system would kill the process."""
        needed = sum(12 * p.numel() for p in self.parameters if p.grad is None)
        free = available_memory()
        if needed > free:
            raise ConfigError(
                f"training needs {needed / 2**30:.1f} GiB more for gradients and optimizer; "
                f"{free / 2**30:.1f} GiB are free",
                remedy="Free memory, use backend.mode = 'lora', or a smaller model.",
            )

    def _demand_finite(self, batch: TokenBatch, at_N: Tensor, terms_N: Tensor) -> None:
        if bool(torch.isfinite(terms_N).all()):
            return
        bad = int(at_N[~torch.isfinite(terms_N)][0])
        sequence = int((torch.tensor(batch.offsets_S1) <= bad).sum()) - 1
        self.model.zero_grad(set_to_none=True)
        self.pending = []
        raise BackendError(
            f"the loss of sequence {batch.names_S[sequence]!r} is not finite (token "
            f"{bad - int(batch.offsets_S1[sequence])}); gradients dropped, weights as before"
        )


def _carries_gradient(batch: TokenBatch, span: slice) -> bool:
    credit = batch.advantage_T[span] * batch.weight_T[span] * batch.target_T[span]
    return bool((credit != 0).any())
