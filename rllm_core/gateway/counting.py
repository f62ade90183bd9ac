"""How many tokens a prompt has, for agents that ask before they call."""

import json

from rllm_core.gateway.exchange import Exchange
from rllm_core.gateway.tokens import prompt_of
from rllm_core.upstream import WireUpstream

__all__ = ["count_prompt"]

_CHARACTERS = 4
"""To a token, in the estimate for servers that cannot be asked."""


async def count_prompt(exchange: Exchange) -> int:
    """The length of the prompt that this call would be sampled from; nothing is recorded of it.

    Exact for a token upstream. A server's tokeniser is unknown: its count is an estimate, and the
    session counts it as one.
    """
    session, route, call = exchange.session, exchange.route, exchange.call
    if isinstance(route.upstream, WireUpstream):
        session.counts["token counts that were estimated"] += 1
        return len(json.dumps([call.messages, call.tools])) // _CHARACTERS
    place, context, _ = await prompt_of(exchange, route.rendering)
    return len(session.tree.sequence(place.parent)) + len(context)
