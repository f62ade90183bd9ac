"""The token tree: which call continues which, and the ids along every path.

Pure and synchronous: no server, no clock, no database. One tree a session. A node is one call
with its reply, as a `Step`. A call continues a node when every message up to that node's reply
agrees with the node's conversation in canonical form, tools included; then it stores only what
it adds. Everything else opens another branch. The invariant, whatever agents do: the ids sent
upstream for a call are the concatenation of `context_ids` and `output_ids` along its path,
followed by its own `context_ids`.

The life of a call: `place` finds where it belongs, `begin` reserves its place among samples of
the very same request, `add` records it when it was sampled, and `drop` takes it back when the
agent never received it, so that its repetition replaces it.
"""

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, frozen

from rllm_core.gateway.canonical import Running, call_ids, canonical
from rllm_core.types import Message, Step, TokenIds

__all__ = ["Node", "Place", "TokenTree"]

Tools = tuple[Mapping[str, Any], ...]


@define(eq=False)
class Node:
    """One recorded call. `renderer` is whatever rendered it; None where ids are unknown.

    `ends` are the hashes of the conversation up to and with its reply: as an agent tells it that
    keeps tool-call ids, and as one that drops or renames them.
    """

    step: Step
    parent: "Node | None"
    key: bytes
    ends: frozenset[bytes]
    slot: int
    renderer: object | None
    continued: bool = False

    def path(self) -> "Iterator[Node]":
        """The node and its ancestors, the root last."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


@frozen(eq=False)
class Place:
    """Where a call belongs: after `parent` (None: a new branch), adding the messages `fresh`."""

    agent: str
    role: str
    tools: Tools
    messages: Sequence[Message]
    parent: Node | None
    fresh: Sequence[Message]
    running: Running

    @property
    def key(self) -> bytes:
        """The hash of the whole request: two calls of one key asked the very same thing."""
        return self.running.key()

    def as_root(self) -> "Place":
        """The same call as a branch of its own."""
        return evolve(self, parent=None, fresh=self.messages)


class TokenTree:
    """All calls of one session."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._ends: dict[bytes, list[Node]] = {}
        self._turn_of: dict[str, str] = {}
        self._slots: Counter[bytes] = Counter()
        self._freed: dict[bytes, list[int]] = {}

    def place(
        self, agent: str, role: str, tools: Sequence[Mapping[str, Any]], messages: Sequence[Message]
    ) -> Place:
        """Where a request belongs: after the longest prefix that ends in a known reply."""
        running = Running(agent, role, tools=tools)
        parent, taken = None, 0
        for i, message in enumerate(messages, 1):
            running.add(canonical(message, self._turn_of))
            if message.get("role") == "assistant":
                found = self._ends.get(running.key())
                if found:
                    parent, taken = _pick(found, message), i
        return Place(agent, role, tuple(tools), messages, parent, messages[taken:], running)

    def begin(self, place: Place) -> tuple[int, bool]:
        """Reserve the lowest free number among live samples of this request.

        Returns the number, and whether it was that of a sample that failed or was lost: a retry
        takes the place of what it repeats.
        """
        if place.parent is not None:
            place.parent.continued = True
        freed = self._freed.get(place.key)
        if freed:
            slot = min(freed)
            freed.remove(slot)
            return slot, True
        slot = self._slots[place.key]
        self._slots[place.key] += 1
        return slot, False

    def cancel(self, place: Place, slot: int) -> None:
        """Give back the number of a call that was never answered."""
        self._freed.setdefault(place.key, []).append(slot)

    def sequence(self, node: Node | None) -> TokenIds:
        """The ids along the path to a node, its own sampled ids included."""
        ids = array("i")
        for ancestor in reversed(list(node.path()) if node else ()):
            ids.extend(ancestor.step.context_ids)
            ids.extend(ancestor.step.output_ids)
        return ids

    def add(self, place: Place, slot: int, step: Step, renderer: object | None) -> Node:
        """Record an answered call; parent, agent, role, messages and tools come from `place`.

        Tools are stored with the first call of a branch only: a branch never changes them.
        """
        step = evolve(
            step,
            parent=place.parent.step.id if place.parent else None,
            agent=place.agent,
            role=place.role,
            messages=tuple(place.fresh),
            tools=() if place.parent else place.tools,
        )
        names = call_ids(step.reply)
        self._turn_of.update(dict.fromkeys(names, names[0]) if names else {})
        forms = {canonical(step.reply, self._turn_of), canonical(step.reply, {})}
        ends = frozenset(map(place.running.after, forms))
        node = Node(step, place.parent, place.key, ends, slot, renderer)
        self.nodes[step.id] = node
        for end in ends:
            self._ends.setdefault(end, []).append(node)
        return node

    def drop(self, node: Node) -> None:
        """Take back a call whose reply never arrived; one that was continued did arrive."""
        if node.continued or self.nodes.pop(node.step.id, None) is None:
            return
        for end in node.ends:
            self._ends[end].remove(node)
        self._freed.setdefault(node.key, []).append(node.slot)

    def steps(self) -> tuple[Step, ...]:
        """Every call that stands, in the order in which they were answered."""
        return tuple(node.step for node in self.nodes.values())


def _pick(nodes: list[Node], message: Message) -> Node:
    """Of replies that read the same: by reasoning, then one that nothing continues yet, the latest.

    An agent that samples a prompt several times and goes on from each of equal replies thus gets
    a branch for each.
    """
    reasoning = message.get("reasoning_content")
    if len(nodes) == 1:
        return nodes[0]
    same = [n for n in nodes if n.step.reply.get("reasoning_content") == reasoning]
    free = [n for n in same or nodes if not n.continued]
    return (free or same or nodes)[-1]
