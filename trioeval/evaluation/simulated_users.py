"""A conversation of a simulated user with the provider under test: who speaks next, and with what prompt.

The provider under test gets the prompt of the row as its system message, then the conversation; the player of
the user gets a system message with its instructions, then the same conversation with exchanged roles. It ends
after the configured number of messages of the user, or with a message of the user that contains `###STOP###`,
which is not part of the conversation.

Every message follows from the prompt, the instructions and the replies before it, so a resumed conversation
sends the same prompts, and finds its recorded replies. The state of a conversation outlives its job: after a
transient failure the job is run again and continues where it failed.

Law: RESUME.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.documents.mistakes import MistakenError
from trioeval.errors import InputError, ProviderError, TemplateError
from trioeval.evaluation.answerer import AnswerObserver
from trioeval.evaluation.journal import RecordedReply
from trioeval.evaluation.prompt import RenderedPrompt
from trioeval.grading import output_text
from trioeval.providers import Reply, Usage
from trioeval.providers.messages import to_messages
from trioeval.suite.simulated_user import INITIAL_MESSAGES, ChatMessage, SimulatedUser
from trioeval.suite.simulated_user_form import read_messages, role_mistake
from trioeval.text import Verbatim, json_text

Speaker: TypeAlias = Literal["user", "provider"]
Message: TypeAlias = Mapping[str, Any]

STOP = "###STOP###"
"""Ends a conversation in a message of the user."""
SESSION = "sessionId"
"""The variable, and the key of the metadata, with the session that a provider has opened."""

_PLAYER = f"""\
You play a person who talks to an assistant. The messages that you get are those of the assistant.

* Write only the next message of this person: short, in the first person, without notes or quotation marks.
* Do not give all information at once, only what is needed now. Do not invent facts.
* Never speak for the assistant.
* If the goal of this person is reached, or cannot be reached, write {STOP} and nothing else."""
_FIRST = "Write your first message to the assistant."


def player_instructions(instructions: str) -> str:
    """Return the system message for the player of a user."""
    return f"{_PLAYER}\n\nThis person:\n\n{instructions}" if instructions.strip() else _PLAYER


def system_messages(prompt: str) -> list[Message]:
    """Return the messages before a conversation: a text is the system message, messages stay as they are.

    Example:
        >>> system_messages("Be brief.")
        [{'role': 'system', 'content': 'Be brief.'}]
    """
    messages = to_messages(prompt)
    if messages == [{"role": "user", "content": prompt}]:
        return [{"role": "system", "content": prompt}]
    return messages


def initial_messages(user: SimulatedUser, rendered: RenderedPrompt) -> list[Message]:
    """Return the beginning of a conversation, from the variable of its test or else from the config.

    Raises:
        InputError: They are not messages.
        TemplateError: One cannot be rendered.
    """
    given = rendered.vars.get(INITIAL_MESSAGES)
    try:
        messages = read_messages(given) if given else user.initial_messages
    except MistakenError as error:
        raise InputError(f"variable {INITIAL_MESSAGES}: {error}") from error
    return [_rendered(message, rendered) for message in messages]


def _rendered(message: ChatMessage, rendered: RenderedPrompt) -> Message:
    role, content = (
        text if isinstance(text, Verbatim) else rendered.fill(text)
        for text in (message.role, message.content)
    )
    if (mistake := role_mistake(role)) is not None:
        raise InputError(f"an initial message: {mistake.message}")
    return {"role": role, "content": content}


@attrs.define(eq=False, repr=False)
class UserConversation:
    """The state of a conversation."""

    user: SimulatedUser
    system: list[Message]
    """The first messages to the provider under test."""
    instructions: str
    """The system message to the player of the user."""
    messages: list[Message]
    """The conversation so far, as the provider under test sees it."""
    turns: int = 0
    """Number of messages of the user, without initial ones."""
    is_stopped: bool = False
    session: str | None = None
    """The session of the provider under test: that of a variable, or which it has opened."""
    replies: list[Reply] = attrs.field(factory=list)
    """Those of both, in order, unusable ones included."""
    last: Reply | None = None
    """The last reply of the provider under test."""
    latency_ms: float = 0.0
    """The total of all replies."""
    recalled: int = 0
    """Replies that an earlier execution received."""
    cached: int = 0
    """Replies from the cache."""

    @classmethod
    def of(cls, user: SimulatedUser, rendered: RenderedPrompt) -> "UserConversation":
        """Return the conversation of a row before its first call.

        Raises:
            InputError: Its initial messages are not valid.
            ProviderError: `bad_request`, if its prompt was meant to be messages and is invalid.
            TemplateError: The instructions, or a message, cannot be rendered.
        """
        try:
            instructions = rendered.fill(user.instructions)
        except TemplateError as error:
            raise type(error)(f"instructions of the simulated user: {error}") from error
        session = rendered.vars.get(SESSION)
        return cls(
            user,
            system_messages(rendered.prompt),
            player_instructions(instructions),
            initial_messages(user, rendered),
            session=output_text(session) if session else None,
        )

    @property
    def speaker(self) -> Speaker | None:
        """The one whose message is next; None at the end."""
        if self.is_stopped:
            return None
        if self.messages and self.messages[-1]["role"] == "user":
            return "provider"
        return "user" if self.turns < self.user.max_turns else None

    @property
    def number(self) -> int:
        """Number of the next call, from 0: unusable replies do not count."""
        return sum(reply.output is not None for reply in self.replies)

    @property
    def prompt(self) -> str:
        """The prompt of the next call."""
        return json_text(self._for_user() if self.speaker == "user" else self._for_provider())

    def _for_user(self) -> list[Message]:
        exchanged = [
            {
                "role": "assistant" if message["role"] == "user" else "user",
                "content": message["content"],
            }
            for message in self.messages
        ]
        system = {"role": "system", "content": self.instructions}
        # Some services refuse a conversation that the assistant begins.
        begins = not exchanged or exchanged[0]["role"] == "assistant"
        return [system, *([{"role": "user", "content": _FIRST}] if begins else ()), *exchanged]

    def _for_provider(self) -> list[Message]:
        if not self.user.stateful:
            return [*self.system, *self.messages]
        last = self.messages[-1]
        return [last] if self.session else [*self.system, last]

    def add(self, paid: RecordedReply, *, recalled: bool) -> None:
        """Add the reply to the next call."""
        reply, speaker = paid.reply, self.speaker
        self.replies.append(reply)
        self.latency_ms += paid.latency_ms
        self.recalled += recalled and not paid.cached
        self.cached += paid.cached
        if reply.output is None:
            return
        text = output_text(reply.output)
        if speaker == "provider":
            self.last = reply
            if session := reply.metadata.get(SESSION):
                self.session = output_text(session)
            self.messages.append({"role": "assistant", "content": text})
        elif STOP in text:
            self.is_stopped = True
        else:
            self.turns += 1
            self.messages.append({"role": "user", "content": text})

    def reply(self) -> Reply:
        """Return the conversation so far as one reply, with the usage of all calls."""
        costs = [reply.cost for reply in self.replies if reply.cost is not None]
        last = self.last or Reply()
        session = {} if self.session is None else {SESSION: self.session}
        return Reply(
            output=transcript(self.messages),
            usage=Usage.sum(reply.usage for reply in self.replies),
            cost=math.fsum(costs) if costs else None,
            guardrails=last.guardrails,
            finish_reason=last.finish_reason,
            media=tuple(one for reply in self.replies for one in reply.media),
            metadata={"messages": [dict(message) for message in self.messages], **session},
        )


def transcript(messages: list[Message]) -> str:
    r"""Return a conversation as text.

    Example:
        >>> transcript(
        ...     [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
        ... )
        'User: Hi\n---\nAssistant: Hello'
    """
    names = {"assistant": "Assistant"}
    return "\n---\n".join(f"{names.get(one['role'], 'User')}: {one['content']}" for one in messages)


@attrs.frozen(eq=False, repr=False)
class TurnObserver:
    """Adds the reply to one call to its conversation, and reports the conversation so far."""

    conversation: UserConversation
    listener: AnswerObserver

    def on_request(self, tokens: int) -> None:
        """Report the start of a request."""
        self.listener.on_request(tokens)

    def on_failure(self, error: ProviderError, tokens: int) -> None:
        """Report a failed request."""
        self.listener.on_failure(error, tokens)

    def on_reply(self, paid: RecordedReply, *, recalled: bool) -> None:
        """Add a reply."""
        self.conversation.add(paid, recalled=recalled)
        self.report()

    def report(self) -> None:
        """Report the conversation so far, if it has any reply."""
        found = self.conversation
        if found.replies:
            cached = found.cached == len(found.replies)
            self.listener.on_progress(
                found.reply(), found.latency_ms, found.recalled, cached=cached
            )
