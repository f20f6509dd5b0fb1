"""Services that speak as OpenAI does: a row of data each."""

from collections.abc import Mapping

from trioeval.providers.endpoint import Service

SERVICES: Mapping[str, Service] = {
    "openai": Service(
        family="openai",
        default_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        host_variables=("OPENAI_API_HOST",),
        url_variables=("OPENAI_API_BASE_URL", "OPENAI_BASE_URL"),
        organization_variable="OPENAI_ORGANIZATION",
    ),
}
"""By the prefix of their ids."""
