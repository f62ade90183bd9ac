"""Numbers in texts: which one is the answer, and when two are equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rllm_core.scoring import numbers


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        ("#### 18", "18"),
        ("16 - 3 - 4 = 9, 9 * 2 = 18\n#### 18\nThat is all, in 3 lines.", "18"),
        ("#### 1\nNo, wait.\n#### 2", "2"),
        ("#### 2,125", "2125"),
        ("#### $109,200,000", "109200000"),
        ("#### -3", "-3"),
        ("#### $-3", "-3"),
        ("#### -$3", "-3"),
        ("####18", "18"),
        ("#### **18**", "18"),
        ("#### \\$18.50", "18.5"),
        ("#### unknown, say 7", "7"),
        ("The answer is 18.0.", "18"),
        ("She has 3 cats and 4 dogs, so 7 animals.", "7"),
        ("5-3", "3"),
        ("temperatures −3", "-3"),
        ("a total of 1,2,3", "3"),
        ("It costs .5 dollars", "0.5"),
        ("\\boxed{42}", "42"),
        ("50%", "50"),
    ],
)
def test_the_final_number(output, answer):
    assert numbers.equal(numbers.final(output), answer)


def test_there_may_be_none():
    assert numbers.final("I do not know.") is None
    assert numbers.final("") is None
    assert numbers.strict("the answer is 7") is None
    assert numbers.strict("#### seven") is None


@pytest.mark.parametrize(
    ("left", "right"), [("18.0", "18"), ("1,000", "1000"), ("$5", "5"), ("+5", "5"), ("-0", "0")]
)
def test_equal(left, right):
    assert numbers.equal(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("18", "18.01"),
        ("-3", "3"),
        ("", ""),
        ("nan", "nan"),
        ("1e3", "1000"),
        (None, "1"),
        ("1-2", "-1"),
    ],
)
def test_not_equal(left, right):
    assert not numbers.equal(left, right)


def test_golds():
    assert numbers.after_hashes("3 + 4 = <<3+4=7>>7\n#### 7 ") == "7"
    for bad in ("no mark 7", "#### seven", "####"):
        with pytest.raises(ValueError, match="no number after"):
            numbers.after_hashes(bad)
    with pytest.raises(ValueError, match="is no number"):
        numbers.matches("7", "seven")


@given(st.integers(-(10**12), 10**12), st.sampled_from(["{}", "{:,}", "{}.0", "${:,}", "{}."]))
def test_every_way_to_write_an_integer_is_read(value, form):
    written = form.format(value)
    assert numbers.equal(numbers.final(f"so it is {written}"), str(value))
    assert numbers.equal(numbers.final(f"1 + 1\n#### {written}\n"), str(value))


@given(st.text())
def test_no_text_breaks_it(text):
    numbers.equal(numbers.final(text), "1")
    numbers.parse(text)
