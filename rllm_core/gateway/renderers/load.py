"""Which renderer a model needs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rllm_core.errors import ConfigError
from rllm_core.gateway.renderers.char import CharRenderer
from rllm_core.gateway.renderers.chatml import SMOLLM2_SYSTEM, ChatMLRenderer
from rllm_core.gateway.renderers.protocol import Extended, Parsed, Renderer, Tools
from rllm_core.types import Message

__all__ = ["FileTokenizer", "load_renderer"]

_REMEDY = "pip install 'rllm-core[tokens]'"


def load_renderer(name: str | Path, *, directory: str | Path | None = None) -> Renderer:
    """The renderer of a model: "tiny", a model directory, or a name with its `directory`.

    SmolLM2's directory gets our ChatML renderer (no `transformers` import); every other one the
    `renderers` library's choice, which is asked by `name` where that is not a directory.
    ConfigError where a package is missing or the directory holds no tokenizer.
    """
    if str(name) == "tiny":
        return CharRenderer()
    folder = Path(directory if directory is not None else name)
    if not (folder / "tokenizer.json").exists() and not (folder / "tokenizer_config.json").exists():
        raise ConfigError(
            f"no tokenizer in {folder}: it has neither tokenizer.json nor tokenizer_config.json",
            remedy="name a model directory as `save_pretrained` writes it, or `tiny`",
        )
    if SMOLLM2_SYSTEM in _template(folder):
        tokenizer = FileTokenizer(folder / "tokenizer.json")
        return ChatMLRenderer(tokenizer, default_system=SMOLLM2_SYSTEM)
    return _from_library(str(name), folder)


def _template(folder: Path) -> str:
    """The chat template of a model directory; empty where there is none."""
    separate = folder / "chat_template.jinja"
    if separate.exists():
        return separate.read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    if not config.exists():
        return ""
    return str(json.loads(config.read_text(encoding="utf-8")).get("chat_template") or "")


class FileTokenizer:
    """A `tokenizer.json` through the `tokenizers` package alone."""

    def __init__(self, path: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigError("reading a tokenizer needs `tokenizers`", remedy=_REMEDY) from error
        self._tokenizer: Any = Tokenizer.from_file(str(path))
        self._tokenizer.encode_special_tokens = True  # in a text, `<|im_end|>` is six tokens

    def encode(self, text: str) -> list[int]:
        """The ids of plain text; half surrogates, which UTF-8 cannot hold, become `?`."""
        try:
            encoding = self._tokenizer.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            whole = text.encode("utf-8", "replace").decode()
            encoding = self._tokenizer.encode(whole, add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def token_id(self, token: str) -> int | None:
        """The id of a special token."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found


class _LibraryRenderer:
    """A renderer of the `renderers` library, with the tokenizer that it was made from."""

    def __init__(self, renderer: Any, tokenizer: Any) -> None:
        self._renderer = renderer
        self._tokenizer = tokenizer

    def render_ids(
        self,
        messages: list[Message],
        *,
        tools: Tools | None = None,
        add_generation_prompt: bool = False,
    ) -> Sequence[int]:
        ids: list[int] = self._renderer.render_ids(
            messages, tools=tools, add_generation_prompt=add_generation_prompt
        )
        return ids

    def parse_response(self, ids: Sequence[int], *, tools: Tools | None = None) -> Parsed:
        parsed: Parsed = self._renderer.parse_response(list(ids), tools=tools)
        return parsed

    def get_stop_token_ids(self) -> Sequence[int]:
        ids: list[int] = self._renderer.get_stop_token_ids()
        return ids

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Message],
        *,
        tools: Tools | None = None,
    ) -> Extended | None:
        extended: Extended | None = self._renderer.bridge_to_next_turn(
            previous_prompt_ids, previous_completion_ids, new_messages, tools=tools
        )
        return extended

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))


def _from_library(name: str, folder: Path) -> Renderer:
    try:
        from renderers import create_renderer
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ConfigError(
            f"a token upstream for {name} needs the `renderers` library ({error})", remedy=_REMEDY
        ) from error
    tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    tokenizer.name_or_path = name
    return _LibraryRenderer(create_renderer(tokenizer), tokenizer)
