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
def test_names_of_secrets_are_known_by_their_words(name: str) -> None:
    """However the words are joined."""
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
def test_names_that_only_look_like_it_are_none(name: str) -> None:
    """Blanking what is no secret hides what a person wants to see."""
    assert not is_secret_name(name)
