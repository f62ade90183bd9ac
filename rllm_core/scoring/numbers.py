"""Numbers in texts: reading them, finding the one that is the answer, comparing them.

Values are compared as decimals, exactly: 18.0 equals 18, `$2,125` equals 2125, and no float
rounds 109,200,000.10. The patterns are linear in the text's length.

`final` follows the two extractions of lm-eval's `gsm8k`: the number after '####' (strict), or
else the last number of the text (flexible). The first number never is the answer.
"""

import re
from decimal import Decimal, InvalidOperation

__all__ = ["after_hashes", "equal", "final", "matches", "parse", "strict"]

# A sign counts only where no digit, letter or closing bracket stands before it: the 3 of "5-3"
# and of "(a)-3" is a 3. Thousands are groups of exactly three digits, else "1,2,3" were one number.
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(rf"(?:(?<![\w)\]])[-+−])?[$€£]?(?:(?<![\w)\].])[-−])?(?:{_DIGITS})")
_AFTER_HASHES = re.compile(r"####[^\S\n]*\**[^\S\n]*\\?")
_DECORATION = str.maketrans({"$": None, "€": None, "£": None, ",": None, "−": "-", "\\": None})

MAX_DIGITS = 1000
"""Longer runs of digits are no number that anybody means."""


def parse(text: str) -> Decimal | None:
    """A whole text as a number; None where it is none.

    Currency and percent signs, thousands separators, a full stop after it and white space
    around it are taken off.
    """
    plain = text.strip().strip("*").removesuffix(".").rstrip("%").translate(_DECORATION).strip()
    if not plain or len(plain) > MAX_DIGITS or not set(plain) <= set("0123456789.+-"):
        return None
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def strict(output: str) -> str | None:
    """The number right after the last '####' that has one; None where there is none."""
    found = None
    for mark in _AFTER_HASHES.finditer(output):
        number = _NUMBER.match(output, mark.end())
        found = number.group() if number else found
    return found


def final(output: str) -> str | None:
    """The answer that an output gives: the number after '####', else its last number."""
    answer = strict(output)
    if answer is None:
        for number in _NUMBER.finditer(output):
            answer = number.group()
    return answer


def after_hashes(text: str) -> str:
    """The gold of a worked solution: what follows the last '####'.

    Raises ValueError where there is no such mark, or no number after it.
    """
    _, mark, gold = text.rpartition("####")
    if not mark or parse(gold) is None:
        raise ValueError(f"no number after a last '####' in {text[-60:]!r}")
    return gold.strip()


def equal(left: str | None, right: str | None) -> bool:
    """Whether both are numbers, and the same one."""
    if left is None or right is None:
        return False
    a, b = parse(left), parse(right)
    return a is not None and a == b


def matches(output: str, answer: str) -> bool:
    """Whether an output's final number equals the answer's; the answer must be a number.

    Raises ValueError where the answer is none: such a task cannot be graded by number.
    """
    if parse(answer) is None:
        raise ValueError(f"the answer {answer!r:.60} is no number")
    return equal(final(output), answer)
