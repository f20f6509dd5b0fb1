"""Columns: which prompts each provider gets, and who is meant by a reference."""

import itertools
from collections.abc import Iterable, Iterator

import attrs

from trioeval.suite.models import Prompt, ProviderEntry, Suite


@attrs.frozen
class Column:
    """One provider with one prompt."""

    prompt_idx: int
    """Its number, over providers in order and over each provider's prompts in order."""
    provider_index: int
    """The place of its provider in the suite."""
    prompt: Prompt


def columns_of(suite: Suite) -> Iterator[Column]:
    """All columns of a suite, in order."""
    numbers = itertools.count()
    for provider_index, entry in enumerate(suite.providers):
        for prompt in suite.prompts:
            if entry.prompts is None or means_prompt(entry.prompts, prompt):
                yield Column(next(numbers), provider_index, prompt)


def means_prompt(references: Iterable[str], prompt: Prompt) -> bool:
    """Whether one of the references names the prompt's label or id."""
    names = [name for name in (prompt.label, prompt.given_id, prompt.id) if name is not None]
    return any(refers_to(reference, name) for reference in references for name in names)


def means_provider(references: Iterable[str], entry: ProviderEntry) -> bool:
    """Whether one of the references names the provider's label or id."""
    names = [name for name in (entry.label, entry.id) if name is not None]
    return any(refers_to(reference, name) for reference in references for name in names)


def refers_to(reference: str, name: str) -> bool:
    """Whether a reference means a name: the same, a beginning followed by `*`, or a group before `:`.

    Example:
        >>> (
        ...     refers_to("short*", "short and sweet"),
        ...     refers_to("short", "short:b"),
        ...     refers_to("b", "ab"),
        ... )
        (True, True, False)
    """
    if reference == name or name.startswith(f"{reference}:"):
        return True
    return reference.endswith("*") and name.startswith(reference[:-1])
