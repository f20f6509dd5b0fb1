import pytest

from trioeval.providers.secrets import is_secret_name


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "KEY", "KEY2", "OPENAI_APIKEY", "HF_TOKEN", "DB_PASSWORD", "DB_PASS"),
        *("AWS_SECRET_ACCESS_KEY", "GOOGLE_CREDENTIALS", "MY_AUTH", "GITHUB_PAT", "token"),
        *("x-auth", "api_key", "api-key", "x-authtoken", "x-credential", "x-access-token"),
        *(
            "Authorization",
            "Proxy-Authorization",
            "Cookie",
            "Set-Cookie",
            "session",
            "X-Session-Id",
        ),
        *("x-access-key", "x-goog-api-key", "x-amz-security-token"),
        *("apiKey", "APIKey", "APIkey", "clientSecret", "accessToken", "auth"),
    ],
)
def test_names_of_secrets_are_recognised_by_their_words(name: str) -> None:
    """Any way of joining the words is recognised."""
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "2", "AUTHOR", "MAX_TOKENS", "KEYBOARD", "MONKEY", "COMPASS", "PATH", "PWD"),
        *("maxTokens", "maxCompletionTokens", "max_output_tokens", "tokensPerSecond", "keywords"),
        *("apiKeyEnvar", "api_key_envar", "passthrough", "x-team", "www-authenticate"),
        *("x-ratelimit-remaining-tokens", "x-amzn-bedrock-input-token-count", "x-request-id"),
    ],
)
def test_similar_names_are_not_secret(name: str) -> None:
    """Hiding a text that is not secret hides useful information."""
    assert not is_secret_name(name)
