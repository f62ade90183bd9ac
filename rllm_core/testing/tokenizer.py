"""A tokenizer in which one text has many tokenisations, on purpose."""

import random
from collections.abc import Callable, Sequence

__all__ = ["AmbiguousTokenizer"]

SPECIALS = ("<|im_start|>", "<|im_end|>")


class AmbiguousTokenizer:
    """Bytes, and pieces of several bytes that overlap each other.

    `encode` takes the longest piece first, as BPE roughly does; a model may sample any other
    split (`segment`), which `encode(decode(ids))` does not give back. Whoever tokenises text
    again is found out at once.
    """

    def __init__(
        self,
        pieces: Sequence[str] = ("he", "ell", "llo", "lo", "th", "the", "in", "ing", "\n\n", "  "),
        specials: Sequence[str] = SPECIALS,
    ) -> None:
        self._pieces = {piece.encode(): 256 + i for i, piece in enumerate(pieces)}
        first = 256 + len(self._pieces)
        self._specials = {special: first + i for i, special in enumerate(specials)}
        self._bytes = {i: bytes([i]) for i in range(256)}
        self._bytes |= {i: piece for piece, i in self._pieces.items()}
        self._bytes |= {i: special.encode() for special, i in self._specials.items()}
        self._longest = max(map(len, self._pieces), default=1)

    @property
    def size(self) -> int:
        """How many ids there are."""
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """The longest piece first; never a special token."""
        return self._split(text.encode("utf-8", "replace"), lambda fits: fits[0])

    def segment(self, text: str, chance: random.Random) -> list[int]:
        """Any split of the text into pieces, as a model might sample it."""
        return self._split(text.encode("utf-8", "replace"), chance.choice)

    def _split(self, data: bytes, choose: Callable[[list[bytes]], bytes]) -> list[int]:
        ids, at = [], 0
        while at < len(data):
            fits = [
                data[at : at + n]
                for n in range(self._longest, 1, -1)
                if data[at : at + n] in self._pieces and at + n <= len(data)
            ]
            piece = choose([*fits, data[at : at + 1]])
            ids.append(self._pieces.get(piece, piece[0]) if len(piece) > 1 else piece[0])
            at += len(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text; bytes that are no UTF-8 become replacement characters."""
        return b"".join(self._bytes[i] for i in ids).decode("utf-8", "replace")

    def token_id(self, token: str) -> int | None:
        """The id of a special token."""
        return self._specials.get(token)
