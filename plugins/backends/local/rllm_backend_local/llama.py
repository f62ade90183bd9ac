"""The fast sampling engine, for models of Llama architecture.

It holds a cast copy of the trainer's weights (`refresh` is the whole weight sync), with q, k,
v and gate, up fused, and LoRA pairs left unmerged: rounding a merged W + BA to bf16 loses
small deltas. The cache is one tensor [layer, k or v, row, KV head, time, head]; every row
has its own length, so rows join and leave at any step. Prompts are prefilled as tries
(`packing`): what several have in common is computed once.

Kernels round differently for different shapes, so a row's numbers depend a little on who
shares its batch. A `steady` engine pads all shapes to multiples for which they do not (in
fp32): runs repeat bit for bit whatever the order in which requests arrive.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - its usual name

from rllm_backend_local.packing import Row, micro_batches, pack_rows, row_tensors

__all__ = ["LlamaEngine", "is_llama"]

_PREFILL_TOKENS = 4096
_SCORE_CHUNK = 512
_STEADY_ROWS, _STEADY_TOKENS = 16, 64


def is_llama(config: Any) -> bool:
    """Whether `LlamaEngine` computes this model exactly."""
    rope = getattr(config, "rope_parameters", None) or {}
    return (
        config.model_type == "llama"
        and config.hidden_act == "silu"
        and not getattr(config, "attention_bias", False)
        and not getattr(config, "mlp_bias", False)
        and rope.get("rope_type", "default") in ("default", "linear", "llama3")
    )


class Projection:
    """x·Wᵀ of fused linear layers, with their LoRA pairs if there are any."""

    def __init__(self, layers: Sequence[Any], dtype: torch.dtype) -> None:
        self.layers, self.dtype = layers, dtype
        self.adapted = hasattr(layers[0], "base_layer")
        sources = [layer.base_layer if self.adapted else layer for layer in layers]
        self.weight = torch.cat([s.weight.detach() for s in sources]).to(dtype, copy=True)
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self.refresh()

    def refresh(self) -> None:
        """Copy in what the trainer has changed."""
        if self.adapted:
            self.pairs = [self._pair(layer) for layer in self.layers]
            return
        at = 0
        for layer in self.layers:
            size = layer.weight.shape[0]
            self.weight[at : at + size].copy_(layer.weight.detach())
            at += size

    def _pair(self, layer: Any) -> tuple[Tensor, Tensor]:
        name = layer.active_adapters[0]
        a = layer.lora_A[name].weight.detach()
        b = layer.lora_B[name].weight.detach() * layer.scaling[name]
        return a.to(self.dtype, copy=True), b.to(self.dtype, copy=True)

    def __call__(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight)
        if not self.adapted:
            return y
        return y + torch.cat([F.linear(F.linear(x, a), b) for a, b in self.pairs], -1)


class Block:
    """The weights of one layer."""

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.norms = (layer.input_layernorm, layer.post_attention_layernorm)
        self.norm1, self.norm2 = (n.weight.detach().to(dtype, copy=True) for n in self.norms)
        self.qkv = Projection([attention.q_proj, attention.k_proj, attention.v_proj], dtype)
        self.out = Projection([attention.o_proj], dtype)
        self.gate_up = Projection([mlp.gate_proj, mlp.up_proj], dtype)
        self.down = Projection([mlp.down_proj], dtype)

    def refresh(self) -> None:
        """Copy in what the trainer has changed."""
        for copy, norm in zip((self.norm1, self.norm2), self.norms, strict=True):
            copy.copy_(norm.weight.detach())
        for projection in (self.qkv, self.out, self.gate_up, self.down):
            projection.refresh()


class LlamaEngine:
    """Prefill, decode and score over rows with lengths of their own.

    `model` is the trainer's Hugging Face model (or its base under PEFT), `budget` the bytes
    that the cache may take.
    """

    def __init__(
        self, model: Any, dtype: torch.dtype, context: int, budget: int, *, steady: bool = False
    ) -> None:
        c = model.config
        self.steady = steady
        self.units = (_STEADY_ROWS, _STEADY_TOKENS) if steady else (1, 1)
        self.source, self.dtype, self.budget = model, dtype, budget
        self.L, self.H, self.KV = (
            c.num_hidden_layers,
            c.num_attention_heads,
            c.num_key_value_heads,
        )
        self.width, self.eps = c.hidden_size, c.rms_norm_eps
        self.D = getattr(c, "head_dim", None) or c.hidden_size // self.H
        self.token_bytes = 2 * self.L * self.KV * self.D * dtype.itemsize
        with torch.no_grad():
            probe = torch.zeros(1, 1, dtype=torch.float32)
            cos, sin = model.model.rotary_emb(probe, torch.arange(context)[None])
            self.cos, self.sin = cos[0].to(dtype), sin[0].to(dtype)
            body = model.model
            self.embedding = body.embed_tokens.weight.detach().to(dtype, copy=True)
            self.tied = model.lm_head.weight is body.embed_tokens.weight
            self.head = self.embedding
            if not self.tied:
                self.head = model.lm_head.weight.detach().to(dtype, copy=True)
            self.norm = body.norm.weight.detach().to(dtype, copy=True)
            self.blocks = [Block(layer, dtype) for layer in body.layers]
        self.lengths = torch.zeros(0, dtype=torch.long)
        self.cache = self._allocate(0, 0)

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the trainer's weights; live rows go on with them."""
        body = self.source.model
        self.embedding.copy_(body.embed_tokens.weight.detach())
        if not self.tied:
            self.head.copy_(self.source.lm_head.weight.detach())
        self.norm.copy_(body.norm.weight.detach())
        for block in self.blocks:
            block.refresh()

    def fits(self, rows: int, tokens: int) -> bool:
        """Whether that many rows of up to that many tokens stay within the cache's budget."""
        return bool(rows * tokens * self.token_bytes <= self.budget)

    @torch.inference_mode()
    def admit(self, prompts: Sequence[Sequence[int]], reserve: int) -> Tensor:
        """Prefill new rows after the live ones; logits [new rows, vocabulary] of each end.

        `reserve` is the longest that any live or new row may become.
        """
        first = len(self.lengths)
        self._ensure(first + len(prompts), reserve)
        ends = torch.empty(len(prompts), self.width, dtype=self.dtype)
        tries = pack_rows(prompts, _PREFILL_TOKENS, 0 if self.steady else self.width)
        for rows in micro_batches(tries, _PREFILL_TOKENS):
            self._prefill(rows, first, ends)
        lengths = torch.tensor([len(p) for p in prompts])
        self.lengths = torch.cat([self.lengths, lengths])
        padding = _up(len(ends), self.units[0]) - len(ends)
        return F.linear(F.pad(ends, (0, 0, 0, padding)), self.head)[: len(prompts)]

    @torch.inference_mode()
    def decode(self, tokens: Sequence[int]) -> Tensor:
        """Append one token to each live row; logits [rows, vocabulary] of the next."""
        live, (rows_unit, tokens_unit) = len(tokens), self.units
        n = _up(live, rows_unit)
        at = F.pad(self.lengths, (0, n - live))
        longest = _up(int(at.max()) + 1, tokens_unit)
        mask = (torch.arange(longest) <= at[:, None])[:, None, None]
        ids = F.pad(torch.tensor(tokens), (0, n - live))[:, None]
        rows = torch.arange(n)
        x = F.embedding(ids, self.embedding)
        cos, sin = self.cos[at][:, None, None], self.sin[at][:, None, None]
        for layer, block in enumerate(self.blocks):
            q, k, v = self._qkv(block, x, cos, sin)
            keys, values = self.cache[layer, 0, :n], self.cache[layer, 1, :n]
            keys[rows, :, at], values[rows, :, at] = k[:, :, 0], v[:, :, 0]
            # The query heads of one KV head attend as if they were query positions.
            grouped = q.reshape(n, self.KV, self.H // self.KV, self.D)
            keys, values = keys[:, :, :longest], values[:, :, :longest]
            o = F.scaled_dot_product_attention(grouped, keys, values, attn_mask=mask)
            x = self._finish(block, x, o.reshape(n, 1, self.H * self.D))
        self.lengths += 1
        x = F.rms_norm(x[:, 0], (self.width,), self.norm, self.eps)
        return F.linear(x, self.head)[:live]

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        """Let row i be what row `rows[i]` was, and drop the rest.

        A row that moves must come from past the new end.
        """
        for to, source in enumerate(rows):
            if to != source:
                length = int(self.lengths[source])
                self.cache[:, :, to, :, :length] = self.cache[:, :, source, :, :length]
        self.lengths = self.lengths[list(rows)]

    @torch.inference_mode()
    def score(self, ids: Sequence[int]) -> list[float]:
        """The logprob of each id given those before it; the first is 0."""
        hidden = self._forward(*row_tensors(pack_rows([ids], len(ids), 0)), None)[0]
        logprobs = [0.0]
        for start in range(0, len(ids) - 1, _SCORE_CHUNK):
            part = hidden[start : min(start + _SCORE_CHUNK, len(ids) - 1)]
            logp = torch.log_softmax(F.linear(part, self.head).float(), -1)
            target = torch.tensor(list(ids[start + 1 : start + 1 + len(part)]))
            logprobs += logp.gather(1, target[:, None])[:, 0].tolist()
        return logprobs

    def _prefill(self, rows: Sequence[Row], first: int, ends: Tensor) -> None:
        ids, positions, mask = row_tensors(rows, self.units[1])
        B, T = ids.shape
        made = torch.empty(self.L, 2, B, self.KV, T, self.D, dtype=self.dtype)
        hidden = self._forward(ids, positions, mask, made)
        for b, row in enumerate(rows):
            for member, path in zip(row.members, row.paths, strict=True):
                where = torch.tensor(path)
                self.cache[:, :, first + member, :, : len(path)] = made[:, :, b][:, :, :, where]
                ends[member] = hidden[b, path[-1]]

    def _forward(
        self, ids: Tensor, positions: Tensor, mask: Tensor | None, made: Tensor | None
    ) -> Tensor:
        """Hidden states [B, T, width] of packed rows; keys and values go to `made`."""
        B, T = ids.shape
        x = F.embedding(ids, self.embedding)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        group = self.H // self.KV
        for layer, block in enumerate(self.blocks):
            q, k, v = self._qkv(block, x, cos, sin)
            if made is not None:
                made[layer, 0], made[layer, 1] = k, v
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
            x = self._finish(block, x, o.transpose(1, 2).reshape(B, T, self.H * self.D))
        return F.rms_norm(x, (self.width,), self.norm, self.eps)

    def _qkv(
        self, block: Block, x: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        B, T = x.shape[:2]
        fused = block.qkv(F.rms_norm(x, (self.width,), block.norm1, self.eps))
        heads = fused.view(B, T, self.H + 2 * self.KV, self.D).transpose(1, 2)
        q, k, v = heads.split([self.H, self.KV, self.KV], 1)
        return _rotate(q, cos, sin), _rotate(k, cos, sin), v

    def _finish(self, block: Block, x: Tensor, attended: Tensor) -> Tensor:
        x = x + block.out(attended)
        gate, up = block.gate_up(F.rms_norm(x, (self.width,), block.norm2, self.eps)).chunk(2, -1)
        return x + block.down(F.silu(gate) * up)

    def _ensure(self, rows: int, tokens: int) -> None:
        _, _, have_rows, _, have_tokens, _ = self.cache.shape
        if rows <= have_rows and tokens <= have_tokens:
            return
        live = len(self.lengths)
        rows, tokens = _up(rows, self.units[0]), _up(tokens, self.units[1])
        wanted = max(rows, have_rows), max(tokens, have_tokens)
        if not self.fits(*wanted):
            wanted = rows, tokens
        old, self.cache = self.cache, self._allocate(*wanted)
        if live:
            used = int(self.lengths.max())
            self.cache[:, :, :live, :, :used] = old[:, :, :live, :, :used]

    def _allocate(self, rows: int, tokens: int) -> Tensor:
        # Zeros: masked entries must be finite; pages that are never written take no memory.
        return torch.zeros(self.L, 2, rows, self.KV, tokens, self.D, dtype=self.dtype)


def _up(count: int, unit: int) -> int:
    return -(-count // unit) * unit


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin
