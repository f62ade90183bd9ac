"""Conversations that the caller names instead of sending: `previous_response_id`."""

from rllm_core.gateway.calls import Call, Refusal
from rllm_core.gateway.session import Session
from rllm_core.types import Message

__all__ = ["go_on"]


def go_on(session: Session, call: Call, call_id: str) -> None:
    """Put the conversation up to the earlier reply in front of the call's messages.

    Instructions are for one call alone: those of the earlier call are left out. Refusal (400) in
    the API's words where the session holds no such reply.
    """
    if call.instructed:
        session.instructed.add(call_id)
    if call.after is None:
        return
    node = session.tree.nodes.get(call.after)
    if node is None:
        raise Refusal(
            400,
            f"Previous response with id '{call.after:.80}' not found.",
            code="previous_response_not_found",
        )
    earlier: list[Message] = []
    for ancestor in reversed(list(node.path())):
        told = list(ancestor.step.messages)
        if ancestor.parent is None and call.after in session.instructed:
            del told[0]
        earlier += [*told, ancestor.step.reply]
    head = 1 if call.instructed else 0
    call.messages = [*call.messages[:head], *earlier, *call.messages[head:]]
    call.body = {**call.body, "messages": call.messages}
