"""From messages to token ids and back: the chat templates of models.

A renderer owns one model family's template. The protocol is that of the `renderers` library,
whose hand-written renderers serve most open models; ours serve SmolLM2-style ChatML with tools
(`ChatMLRenderer`) and the built-in character model (`CharRenderer`). `load_renderer` picks.
"""

from rllm_core.gateway.renderers.char import TINY_VOCABULARY, CharRenderer
from rllm_core.gateway.renderers.chatml import SMOLLM2_SYSTEM, ChatMLRenderer
from rllm_core.gateway.renderers.load import load_renderer
from rllm_core.gateway.renderers.protocol import (
    Extended,
    Parsed,
    ParsedCall,
    Renderer,
    TextTokenizer,
)

__all__ = [
    "SMOLLM2_SYSTEM",
    "TINY_VOCABULARY",
    "CharRenderer",
    "ChatMLRenderer",
    "Extended",
    "Parsed",
    "ParsedCall",
    "Renderer",
    "TextTokenizer",
    "load_renderer",
]
