"""Keeping secrets out of what is written: texts, values and errors with every secret blanked."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.errors import ProviderError, leaves

BLANK = "[hidden]"
SHORTEST = 4
"""Shorter texts are no secrets: blanking "1" would blank half of the results."""


def hide(text: str, secrets: Sequence[str]) -> str:
    """The text with every secret blanked.

    Example:
        >>> hide("the key sk-1234 is wrong", ["sk-1234"])
        'the key [hidden] is wrong'
    """
    for secret in secrets:
        if secret in text and len(secret) >= SHORTEST:
            text = text.replace(secret, BLANK)
    return text


def hide_in(value: Any, secrets: Sequence[str]) -> Any:
    """A value of JSON with every secret in its texts and keys blanked; the same object if there is none."""
    match value:
        case str():
            return hide(value, secrets)
        case Mapping():
            pairs = {hide_in(key, secrets): hide_in(part, secrets) for key, part in value.items()}
            return value if _same(pairs.items(), value.items()) else pairs
        case list() | tuple():
            parts = [hide_in(part, secrets) for part in value]
            return value if all(map(_is, parts, value)) else parts
        case _:
            return value


def hide_in_error(error: ProviderError, secrets: Sequence[str]) -> ProviderError:
    """An error without secrets, and without the causes that tell them; the same one if it has none."""
    excerpt = error.body_excerpt
    told = [error.message, excerpt or "", *map(str, _causes(error))]
    if not any(secret in text for secret in secrets for text in told):
        return error
    clean = ProviderError(
        error.kind,
        hide(error.message, secrets),
        status=error.status,
        retry_after=error.retry_after,
        body_excerpt=None if excerpt is None else hide(excerpt, secrets),
        fault=error.fault,
        retries=error.retries,
    )
    clean.tokens, clean.money = error.tokens, error.money
    return clean


def _causes(error: BaseException) -> Iterator[BaseException]:
    """All that a traceback of the error would show besides it."""
    for before in (error.__cause__, error.__context__):
        if before is not None:
            yield from leaves(before)
            yield from _causes(before)


def _is(one: object, other: object) -> bool:
    return one is other


def _same(pairs: Any, others: Any) -> bool:
    return all(
        one[0] is other[0] and one[1] is other[1] for one, other in zip(pairs, others, strict=False)
    )
