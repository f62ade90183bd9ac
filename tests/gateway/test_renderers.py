"""Renderers: their templates, what they parse, and which one a model gets."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rllm_core.errors import ConfigError
from rllm_core.gateway.renderers import (
    SMOLLM2_SYSTEM,
    CharRenderer,
    ChatMLRenderer,
    load_renderer,
)
from rllm_core.gateway.renderers.hermes import parse_calls
from rllm_core.testing.tokenizer import AmbiguousTokenizer

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}


def text(renderer, messages, **options) -> str:
    return renderer.decode(renderer.render_ids(messages, **options))


def test_chatml_with_tools_in_full():
    renderer = ChatMLRenderer(AmbiguousTokenizer())
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1+2?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "4"}]},
    ]
    got = text(renderer, messages, tools=[TOOL], add_generation_prompt=True)
    head, _, rest = got.partition("<|im_end|>\n")
    assert head.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\nYou may call one or more")
    assert f"<tools>\n{json.dumps(TOOL)}\n</tools>" in head
    assert rest == (
        "<|im_start|>user\n1+2?<|im_end|>\n"
        "<|im_start|>assistant\nLet me see.\n"
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
        '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n3\n</tool_response>\n"
        "<tool_response>\n4\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_text_cannot_end_a_turn():
    renderer = ChatMLRenderer(AmbiguousTokenizer())
    ids = renderer.render_ids([{"role": "user", "content": "<|im_end|>"}])
    assert ids.count(renderer.get_stop_token_ids()[0]) == 1


@pytest.mark.parametrize(
    ("written", "content", "statuses"),
    [
        ('a<tool_call>{"name": "f", "arguments": {}}</tool_call>', "a", ["ok"]),
        ('<tool_call>{"name": "f"}</tool_call>', "", ["ok"]),
        ("<tool_call>{</tool_call>", "", ["invalid_json"]),
        ('<tool_call>{"arguments": {}}</tool_call>', "", ["missing_name"]),
        ("<tool_call>[1]</tool_call>", "", ["missing_name"]),
        ('<tool_call>{"name": "f"', "", ["unclosed_block"]),
        ("no call </tool_call>", "no call </tool_call>", []),
    ],
)
def test_hermes_calls(written, content, statuses):
    outside, calls = parse_calls(written)
    assert (outside, [c.status for c in calls]) == (content, statuses)


@given(st.text())
def test_hermes_parsing_never_fails(anything):
    for written in (anything, f"<tool_call>{anything}", f"<tool_call>{anything}</tool_call>"):
        parse_calls(written)


def test_the_character_model():
    renderer = load_renderer("tiny")
    assert isinstance(renderer, CharRenderer)
    ids = renderer.render_ids([{"role": "user", "content": "3="}], add_generation_prompt=True)
    assert renderer.decode(ids) == "3="
    assert renderer.parse_response(renderer.encode("4#")).content == "4"
    assert renderer.bridge_to_next_turn(ids, [4], [{"role": "user", "content": "+"}]).token_ids == [
        *ids,
        4,
        *renderer.encode("+"),
    ]
    with pytest.raises(ValueError, match=r"'!\?'"):
        renderer.encode("?!")
    with pytest.raises(ValueError, match="no tools"):
        renderer.render_ids([], tools=[TOOL])


def test_a_directory_without_a_tokenizer(tmp_path):
    with pytest.raises(ConfigError, match="no tokenizer in"):
        load_renderer(tmp_path)


def make_directory(path: Path, *specials: str, template: str = "") -> Path:
    """A byte-level tokenizer without merges, as a model directory."""
    tokenizers = pytest.importorskip("tokenizers")
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    vocabulary = {symbol: i for i, symbol in enumerate(sorted(alphabet))}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(list(specials))
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template}
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def test_a_smollm2_directory_gets_our_renderer(tmp_path):
    folder = make_directory(
        tmp_path, "<|im_start|>", "<|im_end|>", template=f"x {SMOLLM2_SYSTEM} y"
    )
    renderer = load_renderer("smollm2-135m", directory=folder)
    assert isinstance(renderer, ChatMLRenderer)
    user = [{"role": "user", "content": "hi <|im_end|> \ud800"}]
    assert text(renderer, user) == (
        f"<|im_start|>system\n{SMOLLM2_SYSTEM}<|im_end|>\n"
        "<|im_start|>user\nhi <|im_end|> ?<|im_end|>\n"
    )
    assert renderer.render_ids(user).count(renderer.get_stop_token_ids()[0]) == 2


def test_other_models_get_the_librarys(tmp_path):
    pytest.importorskip("renderers")
    specials = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>")
    tool_tokens = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    folder = make_directory(tmp_path, *specials, *tool_tokens)
    renderer = load_renderer("Qwen/Qwen3-0.6B", directory=folder)
    user = [{"role": "user", "content": "hi"}]
    prompt = list(renderer.render_ids(user, add_generation_prompt=True))
    assert renderer.decode(prompt).endswith("<|im_start|>assistant\n")
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call><|im_end|>'
    encode = renderer._tokenizer.encode
    parsed = renderer.parse_response(encode(call), tools=[TOOL])
    assert [(c.name, c.arguments, c.status) for c in parsed.tool_calls] == [("add", {"a": 1}, "ok")]
    result = [{"role": "tool", "tool_call_id": "c", "content": "3"}]
    bridged = renderer.bridge_to_next_turn(prompt, encode(call), result, tools=[TOOL])
    assert bridged.token_ids[: len(prompt)] == prompt


HOME = Path(os.environ.get("RLLM_HOME") or Path.home() / ".rllm")
SMOLLM2 = HOME / "models" / "smollm2-135m"


@pytest.mark.skipif(not SMOLLM2.is_dir(), reason=f"smollm2-135m is not in {SMOLLM2.parent}")
def test_smollm2_ids_are_those_of_its_own_template():
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(SMOLLM2)
    ours = load_renderer("smollm2-135m", directory=SMOLLM2)
    roles = st.sampled_from(["user", "assistant", "user"])
    contents = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
        ["3+4=", " leading", "trailing \n", "a\n\nb", "123456", "  \t"]
    )
    conversations = st.lists(
        st.builds(lambda r, c: {"role": r, "content": c}, roles, contents), min_size=1, max_size=4
    )

    @settings(max_examples=150, deadline=None)
    @given(conversations, st.booleans(), st.booleans())
    def same(messages, system, prompt):
        if system:
            messages = [{"role": "system", "content": "Be brief."}, *messages]
        expected = theirs.apply_chat_template(
            messages, add_generation_prompt=prompt, return_dict=False
        )
        assert ours.render_ids(messages, add_generation_prompt=prompt) == expected

    same()
