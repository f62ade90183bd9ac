"""Sequences that begin alike, computed once: rows that are tries.

A row holds one or more sequences; where a sequence agrees with the one before it, it uses
that one's positions instead of new ones. A token sees exactly the tokens before it in its
own sequence (a mask says so), at the position that it was sampled at, so values and
gradients are those of separate rows. A GRPO group computes its prompt once, and prompts
that share their examples compute those once.

Joining saves the shared tokens' linear layers and costs attention over a longer, emptier
row. With hidden size h a shared token saves about 12·h² multiplications a layer, a new token
pays about 2·h for each key of the row, at a third of the speed of a plain product; so a
sequence joins while  2·h·shared ≥ new·row length.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    import torch

__all__ = ["Row", "micro_batches", "pack_rows", "row_tensors"]


@define
class Row:
    """One trie. `paths[k]` are the row positions of the tokens of sequence `members[k]`."""

    ids: list[int] = field(factory=list)
    positions: list[int] = field(factory=list)
    members: list[int] = field(factory=list)
    paths: list[list[int]] = field(factory=list)
    fresh: list[int] = field(factory=list)

    @property
    def plain(self) -> bool:
        """Whether causal order alone is the right mask: one path along the whole row."""
        return max(map(len, self.paths)) == len(self.ids)

    def add(self, member: int, ids: Sequence[int], shared: int) -> None:
        """Add a sequence whose first `shared` tokens are those of the latest one."""
        path = self.paths[-1][:shared] if self.paths else []
        path += range(len(self.ids), len(self.ids) + len(ids) - shared)
        self.ids += ids[shared:]
        self.positions += range(shared, len(ids))
        self.members.append(member)
        self.paths.append(path)
        self.fresh.append(shared)


def pack_rows(sequences: Sequence[Sequence[int]], limit: int, width: int) -> list[Row]:
    """Sort the sequences so that alike ones meet, and pack them into rows.

    No row grows past `limit` tokens by joining; `width` is the model's hidden size, 0 to let
    only equal sequences share a row.
    """
    order = sorted(range(len(sequences)), key=lambda i: list(sequences[i]))
    rows: list[Row] = []
    before: Sequence[int] = ()
    for member in order:
        ids = sequences[member]
        shared = _common(before, ids)
        new = len(ids) - shared
        row = rows[-1] if rows else None
        length = len(row.ids) + new if row else 0
        if row is None or length > limit or 2 * width * shared < new * length:
            row, shared = Row(), 0
            rows.append(row)
        row.add(member, ids, shared)
        before = ids
    return rows


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def micro_batches(rows: Sequence[Row], limit: int) -> list[list[Row]]:
    """Rows of like length together, at most `limit` padded tokens in each (or one row)."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: -len(r.ids)):
        if batches and (len(batches[-1]) + 1) * len(batches[-1][0].ids) <= limit:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def row_tensors(
    rows: Sequence[Row], unit: int = 1
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]":
    """Rows as ids [B, T], positions [B, T] and mask [B, 1, T, T] (None: plain causal).

    Rows are padded on the right, to a multiple of `unit`; causal order already keeps real
    tokens from seeing the padding. With a `unit` above 1 there is always a mask.
    """
    import torch

    B, T = len(rows), -(-max(len(r.ids) for r in rows) // unit) * unit
    ids = torch.zeros(B, T, dtype=torch.long)
    positions = torch.zeros(B, T, dtype=torch.long)
    for b, row in enumerate(rows):
        ids[b, : len(row.ids)] = torch.tensor(row.ids)
        positions[b, : len(row.ids)] = torch.tensor(row.positions)
    if unit == 1 and all(row.plain for row in rows):
        return ids, positions, None
    mask = torch.eye(T, dtype=torch.bool).repeat(B, 1, 1)
    for b, row in enumerate(rows):
        for path, shared in zip(row.paths, row.fresh, strict=True):
            whole = torch.tensor(path)
            new = torch.arange(shared, len(path))
            seen = torch.arange(len(path)) <= new[:, None]
            mask[b, whole[shared:, None], whole] = seen
    return ids, positions, mask[:, None]
