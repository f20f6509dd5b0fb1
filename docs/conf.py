"""Configuration of the documentation site: `sphinx-build -W -b html docs build/site`."""

import ast
import importlib
import inspect
import re

from sphinx.application import Sphinx

import trioeval

project = "trioeval"
author = "the authors of trioeval"
copyright = "2026, the authors of trioeval"  # noqa: A001 - the name that Sphinx reads
version = release = trioeval.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["pictures"]

html_theme = "furo"
html_title = "trioeval"
html_theme_options = {
    "navigation_with_keys": True,
    "source_edit_link": None,
}
html_show_sphinx = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_ivar = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

suppress_warnings = [
    "misc.highlighting_failure",  # pages show broken files on purpose
    "ref.python",  # names of annotations are short: a class may be exported by two packages
]

# A name that several packages export is described at the first of them.
_PACKAGES = [
    *(
        f"trioeval.{name}"
        for name in (
            *(
                "errors",
                "rates",
                "kernel",
                "providers",
                "grading",
                "suite",
                "question_eval",
                "columns",
            ),
            *("agent", "report", "run", "simulation", "store", "limits", "testing", "asyncio"),
            "scaleout",
        )
    ),
    "trioeval",
]


_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def _entry(module: str, name: str) -> str:
    """Return the directive for one public name of a package, or a link to the package that owns it."""
    value = getattr(importlib.import_module(module), name)
    for owner in _PACKAGES[: _PACKAGES.index(module)]:
        if getattr(importlib.import_module(owner), name, None) is value:
            return f"* {{py:obj}}`{name} <{owner}.{name}>`, of `{owner}`\n"
    if inspect.isclass(value):
        directive = f".. autoclass:: {module}.{name}\n   :members:"
    elif inspect.isfunction(value):
        directive = f".. autofunction:: {module}.{name}"
    else:
        directive = f".. py:data:: {module}.{name}"
    return f"```{{eval-rst}}\n{directive}\n```\n"


def _public_names(module: str) -> list[str]:
    """Return the names that a package exports: those it imports as themselves."""
    loaded = importlib.import_module(module)
    if (names := getattr(loaded, "__all__", None)) is not None:
        return list(names)
    tree = ast.parse(inspect.getsource(loaded))
    found = [
        alias for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    own = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [*(alias.name for alias in found if alias.asname == alias.name), *own]


def _add_public_names(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Append every public name of the package that an API page is named after."""
    if not docname.startswith("reference/api/") or docname.endswith("/index"):
        return
    name = docname.removeprefix("reference/api/")
    module = name if name == "trioeval" else f"trioeval.{name}"
    names = sorted(set(_public_names(module)), key=str.casefold)
    entries = [_entry(module, name) for name in names if name[0] != "_"]
    links = [entry for entry in entries if entry.startswith("*")]
    source[0] += "\n" + "".join(links) + "\n" + "\n".join(e for e in entries if e not in links)


def _convert_markdown(
    _app: Sphinx, _what: str, _name: str, _value: object, _options: object, lines: list[str]
) -> None:
    """Turn the Markdown of a docstring, code in backticks and fences, into reStructuredText."""
    converted: list[str] = []
    fence: str | None = None
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        if line.lstrip().startswith("```"):
            if fence is None:
                converted += [f"{indent}.. code-block:: {line.strip()[3:] or 'text'}", ""]
                fence = indent
            else:
                converted.append("")
                fence = None
        elif fence is not None:
            converted.append(f"   {line}")
        else:
            converted.append(_CODE.sub(r"``\1``", line))
    lines[:] = converted


def setup(app: Sphinx) -> None:
    """Register the generator of the API pages."""
    app.connect("source-read", _add_public_names)
    # Before napoleon (500) reads the sections.
    app.connect("autodoc-process-docstring", _convert_markdown, priority=400)
