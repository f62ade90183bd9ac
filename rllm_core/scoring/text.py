"""Comparisons of texts. Linear in their length."""

import unicodedata

__all__ = ["contains", "exact"]


def exact(output: str, answer: str) -> bool:
    """Whether both are the same text, up to white space around them and Unicode form."""
    return _plain(output) == _plain(answer)


def contains(output: str, answer: str) -> bool:
    """Whether the answer occurs in the output, case aside. An empty answer occurs nowhere."""
    wanted = _plain(answer).casefold()
    return bool(wanted) and wanted in _plain(output).casefold()


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()
