"""Providers that need no set-up beyond their key's environment variable."""

from collections.abc import Mapping
from types import MappingProxyType

from attrs import frozen

__all__ = ["KNOWN", "Provider"]


@frozen
class Provider:
    """An OpenAI-compatible service.

    `own` is a server that users run themselves, at whatever address. `refuses` names sampling
    settings that it answers with an error. `api_key_env` None means that it wants no key;
    `stored_key` that one lies in the user's keys file; `custom` that they set it up.
    """

    name: str
    base_url: str
    api_key_env: str | None = None
    own: bool = False
    refuses: tuple[str, ...] = ()
    stored_key: bool = False
    custom: bool = False


def _hosted(name: str, base_url: str, key: str, *refuses: str) -> Provider:
    return Provider(name, base_url, key, refuses=refuses)


def _own(name: str, port: int) -> Provider:
    return Provider(name, f"http://localhost:{port}/v1", own=True)


KNOWN: Mapping[str, Provider] = MappingProxyType(
    {
        each.name: each
        for each in (
            _hosted("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "top_k"),
            _hosted("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
            _hosted("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
            _hosted("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
            _hosted("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "top_k"),
            _hosted("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "top_k"),
            _hosted("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "top_k"),
            _hosted("xai", "https://api.x.ai/v1", "XAI_API_KEY", "top_k"),
            _hosted("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "top_k"),
            _hosted(
                "gemini",
                "https://generativelanguage.googleapis.com/v1beta/openai",
                "GEMINI_API_KEY",
                "top_k",
            ),
            _hosted("anthropic", "https://api.anthropic.com/v1", "ANTHROPIC_API_KEY", "top_k"),
            _own("vllm", 8000),
            _own("sglang", 30000),
            _own("ollama", 11434),
            _own("lmstudio", 1234),
            _own("llamacpp", 8080),
        )
    }
)
"""Providers that need no set-up beyond their key's environment variable."""
