"""The built-in model `tiny`: a random Llama over sixteen characters, for tests and dry runs.

Two layers, 64 wide, 76,096 parameters: it learns one-digit tasks by reinforcement alone in
seconds. Always fp32.
"""

from pathlib import Path
from typing import Any

__all__ = ["CONTEXT", "END", "VOCABULARY", "make", "write_tokenizer"]

VOCABULARY = "0123456789=+ab\n#"
"""The characters; a character's id is its index."""

END = VOCABULARY.index("#")
CONTEXT = 256


def make(seed: int) -> Any:
    """The model with the random weights of this seed."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=END,
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config)


def write_tokenizer(directory: Path) -> None:
    """Tokenizer files of the character vocabulary, as Hugging Face reads them."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {character: i for i, character in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="#"))  # noqa: S106 - a character
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="#", pad_token="#")  # noqa: S106
    fast.save_pretrained(directory)
    (directory / "rllm_renderer.json").write_text('{"renderer": "tiny"}')
