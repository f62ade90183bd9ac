"""The wire formats that agents speak, each behind the small protocol `Dialect`.

A dialect turns a request into a `Call`, and an `Answer`, a stream of `Delta`s or a `Refusal`
back into its own form. It knows nothing of sessions, tokens or upstreams.
"""

from rllm_core.gateway.dialects.chat import ChatCompletions
from rllm_core.gateway.dialects.protocol import Dialect, StreamForm

__all__ = ["DIALECTS", "ChatCompletions", "Dialect", "StreamForm"]

DIALECTS: dict[str, Dialect] = {"chat/completions": ChatCompletions()}
"""By the end of the request's path."""
