"""The simulated user of a test in a suite file.

It is written as the provider of a test, or of the default test, with the id `promptfoo:simulated-user`. Such
a test does not replace the provider of its column, it talks to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs
import cattrs

from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest, read_list
from trioeval.documents.structure import Hook, object_hook
from trioeval.errors import Problem
from trioeval.grading import quote
from trioeval.suite.grader_entries import grader_for
from trioeval.suite.merge import inner
from trioeval.suite.model import ProviderEntry, Test
from trioeval.suite.simulated_user import DEFAULT_INSTRUCTIONS, ChatMessage, SimulatedUser
from trioeval.templates import Templates
from trioeval.text import parse_json

_ROLES = ("user", "assistant", "system")
_MEMBERS = frozenset({"role", "content"})
_EXAMPLE = 'for example [{"role": "user", "content": "Hello"}]'


def read_messages(value: Any) -> tuple[ChatMessage, ...]:
    """Return the initial messages in a list, or in its JSON.

    Raises:
        MistakenError: All mistakes in it.

    Example:
        >>> read_messages('[{"role": "user", "content": "Hello"}]')
        (ChatMessage(role='user', content='Hello'),)
    """
    if isinstance(value, str):
        if not value.strip():
            return ()
        try:
            value = parse_json(value)
        except ValueError as error:
            message = f"must be a list of messages, or its JSON: {error}"
            raise MistakenError(Mistake(message, _EXAMPLE)) from None
    if not isinstance(value, list | tuple):
        message = f"must be a list of messages, got {kind(value)}"
        raise MistakenError(Mistake(message, _EXAMPLE))
    return tuple(read_list(value, _message))


def _message(value: Any) -> ChatMessage:
    if not isinstance(value, dict):
        raise MistakenError(Mistake(f"must be a message, got {kind(value)}", _EXAMPLE))
    mistakes = Mistakes(
        Mistake(
            f'"{key}" is not a part of a message', nearest(str(key), _MEMBERS), at=(key,), key=True
        )
        for key in value
        if key not in _MEMBERS
    )
    for key in sorted(_MEMBERS):
        if key not in value:
            mistakes += [Mistake(f'"{key}" is missing', _EXAMPLE)]
        elif not isinstance(value[key], str):
            mistakes += [Mistake(f"must be text, got {kind(value[key])}", at=(key,))]
    role = value.get("role")
    if isinstance(role, str) and "{{" not in role and (wrong := role_mistake(role)):
        mistakes += [attrs.evolve(wrong, at=("role",))]
    mistakes.raise_any()
    return ChatMessage(value["role"], value["content"])


def role_mistake(role: str) -> Mistake | None:
    """Return the mistake of a role that no message has.

    Example:
        >>> role_mistake("assistant") is None, role_mistake("tool").message
        (True, '"tool" is not a role of a message')
    """
    if role in _ROLES:
        return None
    return Mistake(f"{quote(role)} is not a role of a message", f"one of {', '.join(_ROLES)}")


def simulated_user_hook(
    converter: cattrs.Converter, structure: Hook, templates: Templates | None = None
) -> Hook:
    """Return the hook for the config of a simulated user, whose files are read.

    Args:
        converter: Structures the settings.
        structure: Reads the provider that plays it.
        templates: Checks the syntax of templates; None leaves that to the run.
    """

    def template(value: Any, _wanted: Any) -> str:
        if not isinstance(value, str):
            raise MistakenError(Mistake(f"must be text, got {kind(value)}"))
        check_template(value)
        return value or DEFAULT_INSTRUCTIONS

    def messages(value: Any, _wanted: Any) -> tuple[ChatMessage, ...]:
        found = read_messages(value)
        for one in found:
            check_template(one.content)
        return found

    def check_template(text: str) -> None:
        error = None if templates is None else templates.syntax_error(text)
        if error is not None:
            raise MistakenError(Mistake(error))

    def player(value: Any, target: Any) -> ProviderEntry:
        entry: ProviderEntry = structure(value, target)
        if entry.user is not None:
            message = "a simulated user cannot be played by a simulated user"
            raise MistakenError(Mistake(message, 'name a model, for example "openai:gpt-4.1"'))
        return entry

    return object_hook(
        converter,
        SimulatedUser,
        not_yet=("redteamGenerationContext", "targetId"),
        hooks={"instructions": template, "initial_messages": messages, "user_provider": player},
    )


def user_entry(user: SimulatedUser, judge: Any) -> ProviderEntry | None:
    """Return the provider that plays a user; None if the suite names none.

    Args:
        user: Its settings.
        judge: The provider option of its test, merged with that of the default test.
    """
    return user.user_provider or grader_for(judge, "text")


def named_provider(entry: ProviderEntry, providers: Sequence[ProviderEntry]) -> int | None:
    """Return the index of the only provider with the label, or else the id, that an entry consists of.

    Example:
        >>> providers = [ProviderEntry(id="echo", label="a"), ProviderEntry(id="sim:b")]
        >>> named_provider(ProviderEntry(id="a"), providers)
        0
    """
    if entry != ProviderEntry(id=entry.id):
        return None
    found = [place for place, one in enumerate(providers) if one.label == entry.id]
    found = found or [place for place, one in enumerate(providers) if one.shown_id == entry.id]
    return found[0] if len(found) == 1 else None


_MISSING = "no provider plays the simulated user"
_NAME_ONE = (
    'name one in its config, for example "userProvider": "openai:gpt-4.1-mini", '
    "or a judge in options.provider"
)


def user_problems(
    default: Test, tests: Iterable[tuple[str, Test]], task_type: str
) -> Iterator[Problem]:
    """Yield the problems of the simulated users of a task.

    Args:
        default: The default test of the suite; empty if it has none.
        tests: The tests that are checked before a run, with their paths.
        task_type: The type of the task.
    """
    found: dict[Problem, None] = {}
    for path, test in tests:
        own = inner(test.provider, default.provider)
        if own is None or own.user is None:
            continue
        at = f"{'$.defaultTest' if test.provider is None else path}.provider"
        if task_type != "prompt_eval":
            message = f"a task of type {task_type} has no simulated users"
            found[Problem(at, message, "use a task of type prompt_eval")] = None
        elif user_entry(own.user, inner(test.options.provider, default.options.provider)) is None:
            found[Problem(at, _MISSING, _NAME_ONE)] = None
    yield from found


def user_path(default: Test | None, test: Test, path: str) -> str:
    """Return the path of the provider that plays the simulated user of a test.

    Args:
        default: The default test of the suite.
        test: The test.
        path: The path of the test.
    """
    owner = "$.defaultTest" if test.provider is None else path
    own = inner(test.provider, None if default is None else default.provider)
    if own is not None and own.user is not None and own.user.user_provider is not None:
        return f"{owner}.provider.config.userProvider"
    judged = "$.defaultTest" if test.options.provider is None else path
    return f"{judged}.options.provider"
