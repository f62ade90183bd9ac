"""A model call inside the gateway, whatever its wire format: the request, its answer, refusals."""

from collections.abc import Mapping
from typing import Any

from attrs import Factory, define, frozen

from rllm_core.types import Logprobs, Message, Stop, TokenIds, Usage

__all__ = ["Answer", "Call", "Delta", "Refusal", "ToolForm"]


@frozen
class ToolForm:
    """What a tool was before it became a function: its kind, its own name, its namespace."""

    kind: str
    name: str
    namespace: str = ""


@define
class Call:
    """One request, parsed. Messages and tools are in Chat Completions form.

    `asked` holds the sampling parameters that the agent named; `body` the whole request in Chat
    Completions form, for servers that speak it themselves. `show_reasoning` says whether the reply
    may show what was thought; `ignored` names fields of the request that had no effect.

    `tool_forms` has, by function name, the tools that are no plain functions in the caller's
    dialect; `echo` what the reply repeats of the request. `after` is an earlier call of the session
    whose conversation these messages go on; `instructed` says that the first message is an
    instruction for this call alone. `local` asks for an empty reply without a model. `prompt`, a
    text or token ids, is sampled from as it is, in place of the messages.
    """

    body: Mapping[str, Any]
    messages: list[Message]
    tools: tuple[Mapping[str, Any], ...] = ()
    model: str = ""
    stream: bool = False
    include_usage: bool = False
    asked: Mapping[str, Any] = Factory(dict)
    max_tokens: int | None = None
    tool_choice: Any = None
    want_logprobs: bool = False
    want_ids: bool = False
    show_reasoning: bool = True
    ignored: tuple[str, ...] = ()
    tool_forms: Mapping[str, ToolForm] = Factory(dict)
    echo: Mapping[str, Any] = Factory(dict)
    after: str | None = None
    instructed: bool = False
    local: bool = False
    prompt: str | list[int] | None = None


@frozen
class Answer:
    """One reply, as every dialect can show it.

    `texts` are the sampled tokens' texts; `stopped_by` is the stop string that ended the reply,
    where that is known.
    """

    id: str
    model: str
    created: int
    message: Message
    finish: str
    usage: Usage
    prompt_ids: TokenIds | None = None
    output_ids: TokenIds | None = None
    logprobs: Logprobs | None = None
    texts: tuple[str, ...] = ()
    stopped_by: str | None = None


@frozen
class Delta:
    """A piece of a reply as it streams: text, reasoning, or part of the tool call `index`."""

    kind: str
    text: str
    index: int = 0
    call_id: str | None = None
    name: str | None = None


class Refusal(Exception):  # noqa: N818 - an answer, given to the agent in its dialect
    """A call that gets an error for an answer.

    `code` is the API's short name for it, where there is one. `stop` is the typed stop that it
    means for the session. `final` asks the client's library not to repeat the call. A prompt that
    is too long says its `length` and the `window` in tokens, where they are known.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        stop: Stop | None = None,
        final: bool = True,
        length: int | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.stop = stop
        self.final = final
        self.length = length
        self.window = window
