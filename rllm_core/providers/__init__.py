"""Models by name: hosted providers, servers of one's own, and local weights.

    openai/gpt-5-mini            a known provider, its key from OPENAI_API_KEY
    vllm/Qwen/Qwen3-8B           a server on this machine (`--base-url` for another)
    Qwen/Qwen3-8B, hf/org/name   weights from the hub, on the local backend
    ./directory, 7f3a            weights in a directory; the model that a run exported
    tiny, smollm2-135m           built in

Providers of a user's own lie in `$RLLM_HOME/providers.toml`; keys that they chose to store
in `keys.toml` beside it, readable by them alone. A key is read when it is used, never
printed, and never part of a run.
"""

from rllm_core.providers.known import KNOWN, Provider
from rllm_core.providers.models import BUILT_IN_MODELS, Local, Wire, checked_url, resolve_model
from rllm_core.providers.stored import (
    default_model,
    forget,
    key_of,
    providers,
    remember,
    set_default_model,
)

__all__ = [
    "BUILT_IN_MODELS",
    "KNOWN",
    "Local",
    "Provider",
    "Wire",
    "checked_url",
    "default_model",
    "forget",
    "key_of",
    "providers",
    "remember",
    "resolve_model",
    "set_default_model",
]
