"""Names that say that what they name is secret: of headers, variables and keys of a config.

They are read word by word, as people write them: `x-api-key`, `OPENAI_API_KEY` and `clientSecret` name
secrets, `AUTHOR` and `maxTokens` do not.
"""

import functools
import re

_WORDS = frozenset(
    {
        *("apikey", "auth", "authorization", "bearer", "cookie", "cookies", "credential"),
        *("credentials", "jwt", "key", "keys", "pass", "passcode", "passphrase", "passwd"),
        *("password", "pw", "passwords", "pat", "secret", "secrets", "session", "token"),
    }
)
_ENDS = ("accesskey", "apikey", "cookie", "oauth", "passwd", "password", "secret", "token")
"""What words end in that were written without a gap: `x-authtoken`."""

_ABOUT = frozenset(
    {"count", "envar", "length", "limit", "remaining", "reset", "size", "type", "usage"}
)
"""Last words of names that tell something of a secret, or of what is called like one."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@functools.lru_cache(1024)  # replies have the same few headers, each time
def is_secret_name(name: str) -> bool:
    """Whether a name says that its value must not be shown.

    Example:
        >>> [is_secret_name(name) for name in ("HF_TOKEN", "clientSecret", "x-authtoken", "KEY2")]
        [True, True, True, True]
        >>> [is_secret_name(name) for name in ("AUTHOR", "MAX_TOKENS", "keyboard", "token-count")]
        [False, False, False, False]
    """
    words = _words(name)
    if not words or words[-1] in _ABOUT:
        return False
    return any(word in _WORDS or word.endswith(_ENDS) for word in words)


def _words(name: str) -> list[str]:
    """Its words in lower case, each also with those that it is grown together with."""
    return [
        word.lower()
        for grown in re.split(r"[^A-Za-z]+", name)
        if grown
        for word in (grown, *_PARTS.findall(grown))
    ]
