"""OpenAI-compatible services: one row of data each.

The scope of rate limits follows each service's documentation; without any, each model is assumed to have its
own. Servers on this machine share the machine, whatever the model.
"""

import re
from collections.abc import Mapping

from trioeval.providers.http.endpoint import Service

VARIABLES: Mapping[str, str] = {
    "temperature": "OPENAI_TEMPERATURE",
    "max_tokens": "OPENAI_MAX_TOKENS",
    "max_completion_tokens": "OPENAI_MAX_COMPLETION_TOKENS",
    "top_p": "OPENAI_TOP_P",
    "presence_penalty": "OPENAI_PRESENCE_PENALTY",
    "frequency_penalty": "OPENAI_FREQUENCY_PENALTY",
}
"""Environment variables for defaults of OpenAI's own models."""

MISTRAL_REJECTS = frozenset(
    {
        "audio",
        "function_call",
        "functions",
        "logprobs",
        "modalities",
        "service_tier",
        "store",
        "stream_options",
        "top_logprobs",
        "user",
        "verbosity",
    }
)
"""Keys that Mistral refuses with status 422."""

SERVICES: Mapping[str, Service] = {
    "openai": Service(
        family="openai",
        default_url="https://api.openai.com/v1",
        key_variables=("OPENAI_API_KEY",),
        hosts=("*.api.openai.com",),
        host_variables=("OPENAI_API_HOST",),
        url_variables=("OPENAI_API_BASE_URL", "OPENAI_BASE_URL"),
        organization_variable="OPENAI_ORGANIZATION",
        account_headers={"organization": "openai-organization", "project": "openai-project"},
        openai_models=True,
        variables=VARIABLES,
    ),
    "azure": Service(
        family="azure",
        default_url=None,
        key_variables=("AZURE_OPENAI_API_KEY", "AZURE_API_KEY"),
        url_variables=("AZURE_OPENAI_ENDPOINT", "AZURE_API_BASE_URL"),
        host_path="",
        key_header="api-key",
        path="/openai/v1",
        hosts=(
            "*.openai.azure.com",
            "*.cognitiveservices.azure.com",
            "*.services.ai.azure.com",
        ),
        version_path="/openai/deployments/{model}",
        openai_models=True,
        variables=VARIABLES,
    ),
    "cerebras": Service(
        family="cerebras",
        default_url="https://api.cerebras.ai/v1",
        key_variables=("CEREBRAS_API_KEY",),
        url_variables=("CEREBRAS_BASE_URL",),
        renames={"max_tokens": "max_completion_tokens"},
    ),
    "databricks": Service(
        family="databricks",
        default_url=None,
        key_variables=("DATABRICKS_TOKEN",),
        url_variables=("DATABRICKS_HOST", "DATABRICKS_WORKSPACE_URL"),
        host_path="",
        path="/serving-endpoints",
        hosts=(
            "*.cloud.databricks.com",
            "*.gcp.databricks.com",
            "*.*.azuredatabricks.net",
        ),
    ),
    "deepseek": Service(
        family="deepseek",
        default_url="https://api.deepseek.com/v1",
        key_variables=("DEEPSEEK_API_KEY",),
        url_variables=("DEEPSEEK_BASE_URL",),
        renames={"max_completion_tokens": "max_tokens"},
    ),
    "fireworks": Service(
        family="fireworks",
        default_url="https://api.fireworks.ai/inference/v1",
        key_variables=("FIREWORKS_API_KEY",),
        url_variables=("FIREWORKS_BASE_URL",),
        host_path="/inference/v1",
        limits_per_model=False,
    ),
    "groq": Service(
        family="groq",
        default_url="https://api.groq.com/openai/v1",
        key_variables=("GROQ_API_KEY",),
        url_variables=("GROQ_BASE_URL",),
        host_path="/openai/v1",
        rejects=frozenset({"logprobs", "top_logprobs"}),
    ),
    "litellm": Service(
        family="litellm",
        default_url="http://127.0.0.1:4000/v1",
        key_variables=("LITELLM_API_KEY",),
        url_variables=("LITELLM_BASE_URL",),
        needs_key=False,
    ),
    "llamacpp": Service(
        family="llamacpp",
        default_url="http://127.0.0.1:8080/v1",
        key_variables=("LLAMACPP_API_KEY",),
        url_variables=("LLAMACPP_BASE_URL",),
        needs_key=False,
        limits_per_model=False,
    ),
    "lmstudio": Service(
        family="lmstudio",
        default_url="http://127.0.0.1:1234/v1",
        key_variables=("LMSTUDIO_API_KEY",),
        url_variables=("LMSTUDIO_BASE_URL",),
        needs_key=False,
        limits_per_model=False,
    ),
    "localai": Service(
        family="localai",
        default_url="http://127.0.0.1:8080/v1",
        key_variables=("LOCALAI_API_KEY",),
        url_variables=("LOCALAI_BASE_URL",),
        needs_key=False,
        limits_per_model=False,
    ),
    "mistral": Service(
        family="mistral",
        default_url="https://api.mistral.ai/v1",
        key_variables=("MISTRAL_API_KEY",),
        host_variables=("MISTRAL_API_HOST",),
        url_variables=("MISTRAL_API_BASE_URL", "MISTRAL_BASE_URL"),
        renames={"seed": "random_seed", "max_completion_tokens": "max_tokens"},
        rejects=MISTRAL_REJECTS,
    ),
    "nvidia": Service(
        family="nvidia",
        default_url="https://integrate.api.nvidia.com/v1",
        key_variables=("NVIDIA_API_KEY",),
        url_variables=("NVIDIA_BASE_URL",),
    ),
    "ollama": Service(
        family="ollama",
        default_url="http://127.0.0.1:11434/v1",
        key_variables=("OLLAMA_API_KEY",),
        url_variables=("OLLAMA_BASE_URL",),
        path="/v1",
        needs_key=False,
        limits_per_model=False,
    ),
    "openrouter": Service(
        family="openrouter",
        default_url="https://openrouter.ai/api/v1",
        key_variables=("OPENROUTER_API_KEY",),
        url_variables=("OPENROUTER_BASE_URL",),
        host_path="/api/v1",
        cost_field=("usage", "cost"),
    ),
    "perplexity": Service(
        family="perplexity",
        default_url="https://api.perplexity.ai",
        key_variables=("PERPLEXITY_API_KEY",),
        url_variables=("PERPLEXITY_BASE_URL",),
        host_path="",
        cost_field=("usage", "cost", "total_cost"),
    ),
    "together": Service(
        family="together",
        default_url="https://api.together.xyz/v1",
        key_variables=("TOGETHER_API_KEY",),
        url_variables=("TOGETHER_BASE_URL",),
    ),
    "vllm": Service(
        family="vllm",
        default_url="http://127.0.0.1:8000/v1",
        key_variables=("VLLM_API_KEY",),
        url_variables=("VLLM_BASE_URL",),
        needs_key=False,
        limits_per_model=False,
    ),
    "xai": Service(
        family="xai",
        default_url="https://api.x.ai/v1",
        key_variables=("XAI_API_KEY",),
        url_variables=("XAI_BASE_URL",),
    ),
}
"""Services by the prefix of their ids."""

ANY_SERVICE = "openai-api"
"""The prefix of ids for a service without a row: `openai-api:<service>:<model>`."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def named_service(name: str) -> Service | None:
    """Return a service of which only the name is known; None if the name is invalid.

    Example:
        >>> named_service("my-cloud").key_variables
        ('MY_CLOUD_API_KEY',)
    """
    if _NAME.fullmatch(name) is None:
        return None
    variable = name.replace("-", "_").upper()
    return Service(
        family=name.lower(),
        default_url=None,
        key_variables=(f"{variable}_API_KEY",),
        url_variables=(f"{variable}_BASE_URL",),
    )
