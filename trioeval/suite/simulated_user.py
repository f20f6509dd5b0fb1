"""The settings of the simulated user of a test, as data."""

from typing import TYPE_CHECKING

import attrs

from trioeval.documents.structure import Number

if TYPE_CHECKING:
    from trioeval.suite.model import ProviderEntry

INITIAL_MESSAGES = "initialMessages"
"""The variable of a test that replaces the initial messages of the config."""

DEFAULT_INSTRUCTIONS = "{{instructions}}"


@attrs.frozen
class ChatMessage:
    """A message of a conversation."""

    role: str
    """`user`, `assistant` or `system`; before it is rendered perhaps a template."""
    content: str

    def to_json(self) -> dict[str, str]:
        """Return it as JSON data."""
        return {"role": self.role, "content": self.content}


@attrs.frozen(kw_only=True)
class SimulatedUser:
    """The settings of a simulated user."""

    instructions: str = DEFAULT_INSTRUCTIONS
    """The template of its instructions: who it is, and what it wants."""
    max_turns: Number = 10
    """The maximum number of its messages, ≥ 0, without initial ones."""
    stateful: bool = False
    """True if the provider under test stores the conversation: it gets only the last message."""
    initial_messages: tuple[ChatMessage, ...] = ()
    """The beginning of the conversation, as templates."""
    user_provider: "ProviderEntry | None" = None
    """The provider that plays it; None takes the judge of the test."""
