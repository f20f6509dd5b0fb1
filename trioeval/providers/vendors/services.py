"""OpenAI-compatible services: one row of data each.

The scope of rate limits follows each service's documentation; without any, each model is assumed to have its
own. Servers on this machine share the machine, whatever the model.
"""

import re
from collections.abc import Mapping
from typing import Any

from trioeval.providers.config import Key, is_json, is_json_object, is_text, is_visible_text
from trioeval.providers.http.endpoint import KINDS, URL_PART, Service, UrlPart, is_url_part

VARIABLES: Mapping[str, str] = {
    "temperature": "OPENAI_TEMPERATURE",
    "max_tokens": "OPENAI_MAX_TOKENS",
    "max_completion_tokens": "OPENAI_MAX_COMPLETION_TOKENS",
    "top_p": "OPENAI_TOP_P",
    "presence_penalty": "OPENAI_PRESENCE_PENALTY",
    "frequency_penalty": "OPENAI_FREQUENCY_PENALTY",
}
"""Environment variables for defaults of OpenAI's own models."""

REALTIME = "realtime"
"""The kind of requests over a WebSocket, of OpenAI and Azure."""

OPENAI_MEDIA = ("image", "speech", "tts", "video")
"""The kinds of requests for media, of OpenAI alone."""

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


def _part(name: str) -> tuple[Key, Key]:
    """Return the config keys for a part of a base URL."""
    return (
        Key(name, URL_PART, is_url_part),
        Key(f"{name}Envar", "the name of an environment variable", is_text),
    )


def _header(name: str) -> Key:
    return Key(name, "printable ASCII text", is_visible_text, secret=True)


def _is_header_value(value: Any) -> bool:
    return is_visible_text(value) if isinstance(value, str) else is_json(value)


_ACCOUNT = UrlPart(variable="CLOUDFLARE_ACCOUNT_ID")
_GATEWAY = UrlPart(variable="CLOUDFLARE_GATEWAY_ID")

_PORTKEY = {
    "portkey_cache_force_refresh": "x-portkey-cache-force-refresh",
    "portkey_cache_namespace": "x-portkey-cache-namespace",
    "portkey_config": "x-portkey-config",
    "portkey_custom_host": "x-portkey-custom-host",
    "portkey_forward_headers": "x-portkey-forward-headers",
    "portkey_metadata": "x-portkey-metadata",
    "portkey_provider": "x-portkey-provider",
    "portkey_request_timeout": "x-portkey-request-timeout",
    "portkey_trace_id": "x-portkey-trace-id",
    "portkey_virtual_key": "x-portkey-virtual-key",
}
"""Headers of Portkey, by the config keys for them."""

_PORTKEY_KEYS = (
    _header("portkeyApiKey"),
    Key("portkeyApiBaseUrl", "text", is_text, secret=True),
    Key("portkeyCacheForceRefresh", "text or true or false", _is_header_value),
    _header("portkeyCacheNamespace"),
    Key("portkeyConfig", "text or an object", _is_header_value, secret=True),
    _header("portkeyCustomHost"),
    Key("portkeyForwardHeaders", "text or a list", _is_header_value),
    Key("portkeyMetadata", "text or an object", _is_header_value),
    _header("portkeyProvider"),
    Key("portkeyRequestTimeout", "text or a number", _is_header_value),
    _header("portkeyTraceId"),
    _header("portkeyVirtualKey"),
)

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
        kinds=(*KINDS, *OPENAI_MEDIA, REALTIME),
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
        body_names={"dataSources": "data_sources"},
        openai_models=True,
        variables=VARIABLES,
        kinds=(*KINDS, REALTIME),
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
        config_names={"workspace_url": "api_base_url"},
        body_names={"usageContext": "usage_context"},
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
        url_variables=("FIREWORKS_BASE_URL", "FIREWORKS_API_BASE_URL"),
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
        url_variables=("LITELLM_BASE_URL", "LITELLM_API_BASE"),
        needs_key=False,
        is_router=True,
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
        url_variables=("NVIDIA_BASE_URL", "NVIDIA_API_BASE_URL"),
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
        url_template="https://{region}.api.x.ai/v1",
        parts={"region": UrlPart()},
        keys=_part("region"),
        hosts=("*.api.x.ai",),
    ),
    # Services that promptfoo also knows, in alphabetical order.
    "abliteration": Service(
        family="abliteration",
        default_url="https://api.abliteration.ai/v1",
        key_variables=("ABLIT_KEY",),
        url_variables=("ABLIT_API_BASE_URL",),
    ),
    "ai21": Service(
        family="ai21",
        default_url="https://api.ai21.com/studio/v1",
        key_variables=("AI21_API_KEY",),
        url_variables=("AI21_API_BASE_URL",),
        kinds=("chat",),
    ),
    "aimlapi": Service(
        family="aimlapi",
        default_url="https://api.aimlapi.com/v1",
        key_variables=("AIML_API_KEY",),
    ),
    "alibaba": Service(
        family="alibaba",
        default_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        key_variables=("DASHSCOPE_API_KEY",),
        hosts=("dashscope.aliyuncs.com", "dashscope-us.aliyuncs.com"),
        kinds=("chat", "embedding", "embeddings"),
    ),
    "atlascloud": Service(
        family="atlascloud",
        default_url="https://api.atlascloud.ai/v1",
        key_variables=("ATLASCLOUD_API_KEY",),
    ),
    "cloudera": Service(
        family="cloudera",
        default_url=None,
        key_variables=("CDP_TOKEN",),
        url_template="https://{domain}/namespaces/{namespace}/endpoints/{endpoint}/v1",
        parts={
            "domain": UrlPart(variable="CDP_DOMAIN"),
            "namespace": UrlPart(default="serving-default"),
            "endpoint": UrlPart(default="{model}"),
        },
        keys=(*_part("domain"), *_part("namespace"), *_part("endpoint")),
        kinds=("chat",),
    ),
    "cloudflare-ai": Service(
        family="cloudflare-ai",
        default_url=None,
        key_variables=("CLOUDFLARE_API_KEY",),
        url_template="https://api.cloudflare.com/client/v4/accounts/{account_id}/ai/v1",
        parts={"account_id": _ACCOUNT},
        keys=_part("accountId"),
        hosts=("api.cloudflare.com",),
        kinds=("chat", "completion", "embedding", "embeddings"),
    ),
    "cohere": Service(
        family="cohere",
        default_url="https://api.cohere.ai/compatibility/v1",
        key_variables=("COHERE_API_KEY",),
        hosts=("api.cohere.com",),
        config_names={"p": "top_p", "stop_sequences": "stop"},
        kinds=("chat", "embedding", "embeddings"),
    ),
    "cometapi": Service(
        family="cometapi",
        default_url="https://api.cometapi.com/v1",
        key_variables=("COMETAPI_KEY",),
    ),
    "docker": Service(
        family="docker",
        default_url="http://127.0.0.1:12434/engines/v1",
        key_variables=("DOCKER_MODEL_RUNNER_API_KEY",),
        url_variables=("DOCKER_MODEL_RUNNER_BASE_URL",),
        path="/engines/v1",
        needs_key=False,
        limits_per_model=False,
    ),
    "envoy": Service(
        family="envoy",
        default_url=None,
        key_variables=("ENVOY_API_KEY",),
        url_variables=("ENVOY_API_BASE_URL",),
        path="/v1",
        needs_key=False,
        is_router=True,
    ),
    "f5": Service(
        family="f5",
        default_url=None,
        key_variables=("F5_API_KEY",),
        url_variables=("F5_API_BASE_URL",),
        path="/{model}",
        kinds=("chat",),
    ),
    "helicone": Service(
        family="helicone",
        default_url="http://127.0.0.1:8080/ai",
        key_variables=("HELICONE_API_KEY",),
        url_variables=("HELICONE_BASE_URL",),
        path="/ai",
        paths={"router": "/router/{router}"},
        keys=(Key("router", URL_PART, is_url_part),),
        config_names={"base_url": "api_base_url"},
        needs_key=False,
        is_router=True,
    ),
    "hyperbolic": Service(
        family="hyperbolic",
        default_url="https://api.hyperbolic.xyz/v1",
        key_variables=("HYPERBOLIC_API_KEY",),
        kinds=("chat",),
    ),
    "jfrog": Service(
        family="jfrog",
        default_url="https://models.qwak-prod.qwak.ai/v1",
        key_variables=("QWAK_TOKEN",),
        path="/{model}",
        config_names={"base_url": "api_base_url"},
        kinds=("chat",),
    ),
    "llamaapi": Service(
        family="llamaapi",
        default_url="https://api.llama.com/compat/v1",
        key_variables=("LLAMA_API_KEY",),
        kinds=("chat",),
    ),
    "meta": Service(
        family="meta",
        default_url="https://api.meta.ai/v1",
        key_variables=("MODEL_API_KEY",),
        kinds=("responses", "chat"),
    ),
    "minimax": Service(
        family="minimax",
        default_url="https://api.minimax.io/v1",
        key_variables=("MINIMAX_API_KEY",),
        renames={"max_tokens": "max_completion_tokens"},
        rejects=frozenset({"function_call"}),
        kinds=("chat",),
    ),
    "mlflow-gateway": Service(
        family="mlflow-gateway",
        default_url=None,
        key_variables=("MLFLOW_GATEWAY_API_KEY",),
        url_variables=("MLFLOW_GATEWAY_URL",),
        path="/gateway/mlflow/v1",
        config_names={"gateway_url": "api_base_url"},
        needs_key=False,
        is_router=True,
        kinds=("chat", "embedding", "embeddings"),
    ),
    "moonshot": Service(
        family="moonshot",
        default_url="https://api.moonshot.ai/v1",
        key_variables=("MOONSHOT_API_KEY",),
        hosts=("api.moonshot.cn",),
        renames={"max_tokens": "max_completion_tokens"},
        plain_models=r"^kimi-",
        kinds=("chat",),
    ),
    "novita": Service(
        family="novita",
        default_url="https://api.novita.ai/openai/v1",
        key_variables=("NOVITA_API_KEY",),
        kinds=("chat", "completion", "embedding", "embeddings"),
    ),
    "nscale": Service(
        family="nscale",
        default_url="https://inference.api.nscale.com/v1",
        key_variables=("NSCALE_SERVICE_TOKEN", "NSCALE_API_KEY"),
        kinds=("chat", "completion", "embedding", "embeddings"),
    ),
    "orcarouter": Service(
        family="orcarouter",
        default_url="https://api.orcarouter.ai/v1",
        key_variables=("ORCAROUTER_API_KEY",),
        plain_models=r"(^|/)(claude-opus-([4-9]|\d\d)|deepseek-(reasoner|r\d))",
    ),
    "portkey": Service(
        family="portkey",
        default_url="https://api.portkey.ai/v1",
        key_variables=("PORTKEY_API_KEY",),
        url_variables=("PORTKEY_API_BASE_URL",),
        key_header="x-portkey-api-key",
        credential="portkey_api_key",
        keys=_PORTKEY_KEYS,
        headers=_PORTKEY,
        config_names={"portkey_api_base_url": "api_base_url"},
    ),
    "snowflake": Service(
        family="snowflake",
        default_url=None,
        key_variables=("SNOWFLAKE_API_KEY",),
        url_template="https://{account_identifier}.snowflakecomputing.com",
        parts={"account_identifier": UrlPart(variable="SNOWFLAKE_ACCOUNT_IDENTIFIER")},
        keys=_part("accountIdentifier"),
        path="/api/v2/cortex/v1",
        hosts=("*.snowflakecomputing.com",),
        kinds=("chat",),
    ),
    "truefoundry": Service(
        family="truefoundry",
        default_url="https://llm-gateway.truefoundry.com",
        key_variables=("TRUEFOUNDRY_API_KEY",),
        headers={"metadata": "x-tfy-metadata", "logging_config": "x-tfy-logging-config"},
        keys=(Key("loggingConfig", "an object", is_json_object),),
        embeds_by_name=True,
    ),
    "vercel": Service(
        family="vercel",
        default_url="https://ai-gateway.vercel.sh/v1",
        key_variables=("VERCEL_AI_GATEWAY_API_KEY", "AI_GATEWAY_API_KEY"),
        config_names={"base_url": "api_base_url", "stop_sequences": "stop"},
        kinds=("chat", "embedding", "embeddings"),
    ),
    "voyage": Service(
        family="voyage",
        default_url="https://api.voyageai.com/v1",
        key_variables=("VOYAGE_API_KEY",),
        url_variables=("VOYAGE_API_BASE_URL",),
        kinds=("embedding", "embeddings"),
    ),
}
"""Services by the prefix of their ids."""

ALIASES: Mapping[str, str] = {
    "alicloud": "alibaba",
    "aliyun": "alibaba",
    "azureopenai": "azure",
    "dashscope": "alibaba",
    "palm": "google",
    "qwak": "jfrog",
    "togetherai": "together",
}
"""Other prefixes of promptfoo, and the equivalent ones here."""

GATEWAY = "cloudflare-gateway"
"""The prefix of ids for a service behind Cloudflare's gateway: `cloudflare-gateway:<service>:<model>`."""

BEHIND_GATEWAY: Mapping[str, tuple[str, str]] = {
    "grok": ("XAI_API_KEY", "grok"),
    "groq": ("GROQ_API_KEY", "groq"),
    "mistral": ("MISTRAL_API_KEY", "mistral/v1"),
    "openai": ("OPENAI_API_KEY", "openai"),
    "perplexity-ai": ("PERPLEXITY_API_KEY", "perplexity-ai"),
    "workers-ai": ("CLOUDFLARE_API_KEY", "workers-ai/v1"),
}
"""The variable of the key and the end of the base URL of each service behind the gateway."""


def gateway_service(name: str) -> Service | None:
    """Return a service behind Cloudflare's gateway; None for an unsupported one.

    Example:
        >>> gateway_service("groq").url_template
        'https://gateway.ai.cloudflare.com/v1/{account_id}/{gateway_id}/groq'
    """
    if name not in BEHIND_GATEWAY:
        return None
    variable, path = BEHIND_GATEWAY[name]
    return Service(
        family=GATEWAY,
        default_url=None,
        key_variables=(variable,),
        url_template=f"https://gateway.ai.cloudflare.com/v1/{{account_id}}/{{gateway_id}}/{path}",
        parts={"account_id": _ACCOUNT, "gateway_id": _GATEWAY},
        keys=(*_part("accountId"), *_part("gatewayId"), _header("cfAigToken")),
        headers={"cf_aig_token": "cf-aig-authorization Bearer"},
        openai_models=name == "openai",
        kinds=("chat", "responses") if name == "openai" else ("chat",),
    )


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
