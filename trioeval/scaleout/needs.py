"""The needs of a suite on each worker: versions, environment variables, files, and those that a process has.

Values of variables are compared by digests with a salt of the run. Those of keys are not compared: each
worker may have its own key. So no key, and nothing made from one, is sent.
"""

import functools
import hmac
import importlib.util
import platform
import secrets
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from trioeval.evaluation.prepared import PreparedSuite
from trioeval.grading.registry import split_type
from trioeval.providers import Provider, ProviderSpec
from trioeval.providers.local.custom import CustomSettings
from trioeval.providers.secrets import is_secret_name
from trioeval.scaleout.messages import Needs
from trioeval.scaleout.suite_files import SuiteFiles, assertions_of, digest_of
from trioeval.scripting import is_script, names_script
from trioeval.scripting.javascript import Script

_ALWAYS = ("trioeval", "distributed")
_OF_PREFIX = {
    "anthropic-sdk": ("anthropic",),
    "bedrock": ("boto3",),
    "google-sdk": ("google-genai",),
    "local": ("onnxruntime", "tokenizers"),
    "mcp": ("mcp",),
    "openai-sdk": ("openai",),
    "vertex": ("google-genai",),
}
"""The packages of providers, by the prefix of their ids."""
_NODE = "Node"
_NOT_INSTALLED = "not installed"
_DIGITS = 16
_SETTINGS = tuple(
    prefix + name
    for prefix in ("TRIOEVAL_", "PROMPTFOO_")
    for name in (
        *("CSV_DELIMITER", "CSV_STRICT", "DISABLE_AJV_STRICT_MODE", "DISABLE_CONVERSATION_VAR"),
        *("DISABLE_JSON_AUTOESCAPE", "DISABLE_OBJECT_STRINGIFY", "DISABLE_PDF_AS_TEXT"),
        *("DISABLE_TEMPLATE_ENV_VARS", "DISABLE_TEMPLATING", "DISABLE_VAR_EXPANSION"),
        *("INSECURE_SSL", "PROMPT_SEPARATOR", "SHORT_CIRCUIT_TEST_FAILURES"),
    )
)
"""The settings in the environment that decide what a row is."""


def own_functions(prepared: PreparedSuite) -> Iterator[tuple[str, Provider]]:
    """Yield the providers of the program that a suite uses, with their names."""
    for spec in _specs(prepared):
        if isinstance(spec.settings, CustomSettings):
            yield spec.settings.name, spec.settings.own.function


def needs_of(prepared: PreparedSuite, files: SuiteFiles) -> Needs:
    """Return what a suite needs of each worker."""
    present, equal = _variables(prepared, files)
    return Needs(
        packages=tuple(dict.fromkeys((*_ALWAYS, *_packages(prepared)))),
        modules=tuple(dict.fromkeys(_module(one) for _, one in own_functions(prepared))),
        node=_needs_node(prepared, files),
        present=tuple(sorted(present)),
        equal=tuple(sorted(equal)),
        salt=secrets.token_hex(16),
        files=files.listed,
    )


def versions(needs: Needs, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the versions that the coordinator and its workers must share, by name."""
    found = [("python", ".".join(platform.python_version_tuple()[:2]))]
    for name in needs.packages:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # or a checkout that is not installed
            found.append((name, _NOT_INSTALLED))
    found += ((f"module {name}", _source(name)) for name in needs.modules)
    if needs.node:
        from trioeval.scripting.node import node_version

        # Releases with the same first number run the same code.
        found.append((_NODE, (node_version(environ) or _NOT_INSTALLED).partition(".")[0]))
    return tuple(found)


def variables(needs: Needs, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return digests of the needed variables that are set, by name; "" for those that are not compared.

    Example:
        >>> needs = Needs(packages=(), present=("MY_KEY", "OTHER_KEY"), equal=("MODEL",), salt="s")
        >>> [name for name, _ in variables(needs, {"MODEL": "m", "MY_KEY": "k"})]
        ['MY_KEY', 'MODEL']
    """
    found = [(name, "") for name in needs.present if environ.get(name)]
    found += [(name, _mark(needs.salt, environ[name])) for name in needs.equal if environ.get(name)]
    return tuple(found)


def _module(provider: Provider) -> str:
    """Return the name of the module of a function, or of the class of an object."""
    whole: Any = provider
    while isinstance(whole, functools.partial):
        whole = whole.func
    whole = getattr(whole, "__self__", whole)  # the object of a method
    name: str = getattr(whole, "__module__", type(whole).__module__)
    return name


def _source(module: str) -> str:
    """Return the beginning of the digest of a module's file."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None:
        return _NOT_INSTALLED
    digest = None if found.origin is None else digest_of(Path(found.origin))
    return f"with the digest {digest[:_DIGITS]}" if digest else "without a file"


def _mark(salt: str, value: str) -> str:
    text = value.encode("utf-8", "surrogateescape")
    return hmac.digest(salt.encode(), text, "sha256").hex()[:_DIGITS]


def _variables(prepared: PreparedSuite, files: SuiteFiles) -> tuple[set[str], set[str]]:
    """Return the names of variables that must be set on each worker, and of those that must be equal."""
    environ = prepared.context.environ
    keys, named = {*files.named_in_code}, {*files.named_in_templates, *_SETTINGS}
    for spec in _specs(prepared):
        named |= {*spec.named_variables, *spec.settings.named_variables}
        if (endpoint := spec.settings.endpoint) is not None:
            keys |= {*endpoint.sent_variables}
            named.add(endpoint.url_variable)
        values = {*spec.secrets}
        keys |= {name for name, value in environ.items() if value in values}
    keys |= {name for name in named if is_secret_name(name)}
    own = {"", *prepared.suite.env}.union(*(part.prepared.suite.env for part in prepared.parts))
    return {name for name in keys - own if environ.get(name)}, named - keys - own


def _specs(prepared: PreparedSuite) -> Iterator[ProviderSpec]:
    for part in prepared.parts:
        yield from part.prepared.specs


def _packages(prepared: PreparedSuite) -> Iterator[str]:
    """Yield the optional packages that a suite uses."""
    for spec in _specs(prepared):
        yield from _OF_PREFIX.get(spec.id.partition(":")[0], ())
    limits = prepared.suite.limits
    if limits is not None and limits.backend == "redis":
        yield "coredis"
    kinds = {
        split_type(one.type)[0]
        for part in prepared.parts
        for one in assertions_of(part.prepared.suite)
    }
    for name in sorted(kinds):
        kind = prepared.suite.kinds.get(name)
        if kind is not None and kind.requires is not None:
            yield kind.requires.module


def _needs_node(prepared: PreparedSuite, files: SuiteFiles) -> bool:
    """Return whether code of the suite runs in Node; its engine runs simple scripts itself."""
    if any(names_script(spec.id) for spec in _specs(prepared)):
        return True
    for one in files.listed.files:
        path = Path(one.path)
        if is_script(path):
            code = path.read_text(encoding="utf-8", errors="replace")
            if Script(code, (), "module", file=path).needs_node is not None:
                return True
    return False
