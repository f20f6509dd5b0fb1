# Apart from `providers.generic.http`: what a cache asks by is decided without a request.
"""What decides the reply of a service that a suite describes, so that it may be kept for equal calls."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from trioeval.providers.base import Request
from trioeval.providers.cache_key import Question
from trioeval.providers.config import Templates, to_snake
from trioeval.providers.generic.entry import Entry
from trioeval.providers.generic.identity import may_see_variables
from trioeval.providers.generic.reply import plain
from trioeval.providers.generic.request import Filling
from trioeval.providers.http.wire import HttpRequest
from trioeval.scripting.javascript import Script

READING = ("transform_response", "validate_status")
"""Keys, in snake_case, that say how a reply is read."""


def find_question(
    entry: Entry, config: Mapping[str, Any], request: Request, templates: Templates
) -> Question | None:
    """All that decides the reply to a request; see `Cacheable`.

    Args:
        entry: What the config says.
        config: As it is written, with what is different for this call.
        request: What is asked.
        templates: What fills in its variables.

    Returns:
        None where a function in a Python file or a file that goes along has a say: both may change, and
        what a function looks at cannot be seen.

    Raises:
        ProviderError: `bad_request`: the request cannot be made.
    """
    if entry.function is not None or entry.request.files:
        return None
    said = {to_snake(str(key)): value for key, value in config.items()}
    variables = dict(request.vars)
    reading = {name: said[name] for name in READING if said.get(name) is not None}
    if may_see_variables(entry.transform):
        reading["vars"] = plain(variables)
    if isinstance(entry.rewrite, Script):
        # What it makes of the prompt is known when it has run: what it is given decides that.
        given = json.dumps([said, request.prompt, variables], default=str)
        asked = HttpRequest(entry.request.url, {}, given.encode(), entry.request.method or "")
    else:
        filling = fill(entry, entry.rewrite, request, templates)
        asked = entry.request.render(filling, {})
    return Question(
        name=f"http:{urlsplit(asked.url).hostname or ''}",
        service="http",
        request=asked,
        account=entry.request.auth.credential,
        reading=reading,
    )


def fill(entry: Entry, rewrite: str | None, request: Request, templates: Templates) -> Filling:
    """The variables of a call; the prompt is what a template makes of it.

    Raises:
        ProviderError: `bad_request`: the template cannot be rendered.
    """
    variables = {**request.vars, **entry.tools}
    filling = Filling.of(templates, variables, request.prompt)
    if rewrite is None:
        return filling
    return Filling.of(templates, variables, filling.text(rewrite, "transformRequest"))
