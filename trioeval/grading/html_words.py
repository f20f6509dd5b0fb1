"""The elements of HTML, by what a parser does with them."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _words("""
    html head title base link meta style body article section nav aside h1 h2 h3 h4 h5 h6 header footer
    address p hr pre blockquote ol ul li dl dt dd figure figcaption main div a em strong small s cite q
    dfn abbr ruby rt rp data time code var samp kbd sub sup i b u mark bdi bdo span br wbr img iframe
    embed object param picture source video audio track map area svg math script noscript canvas ins del
    table caption colgroup col tbody thead tfoot tr td th form label input button select datalist
    optgroup option textarea output progress meter fieldset legend details summary dialog menu slot
    template
""")
"""Elements that are current."""

VOID = _words("""
    area base basefont bgsound br col embed frame hr img input keygen link meta param source track wbr
""")
RAW = _words("iframe noembed noframes noscript script style textarea title xmp")
"""Elements in which there are no tags."""
IN_HEAD = _words("base basefont bgsound link meta noframes noscript script style template title")
"""Elements that do not open the body."""
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
FORMATTING = _words("a b big code em font i nobr s small strike strong tt u")
"""Elements that are opened again where something else closed them."""
BARRIERS = _words("applet caption marquee object table td template th")
"""Elements whose inside cannot close what is outside."""
CLOSE_PARAGRAPH = _words("""
    address article aside blockquote center details dialog dir div dl dd dt fieldset figcaption figure
    footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext pre search
    section summary table ul xmp
""")
SPECIAL = (
    CLOSE_PARAGRAPH
    | BARRIERS
    | VOID
    | RAW
    | _words("button col colgroup frameset select tbody tfoot thead tr")
)
"""Elements that an unknown closing tag does not reach through."""

MAY_STAND_IN: Mapping[str, AbstractSet[str]] = {
    "caption": {"table"},
    "col": {"table", "colgroup"},
    "colgroup": {"table"},
    "tbody": {"table"},
    "td": {"table", "tbody", "tfoot", "thead", "tr"},
    "tfoot": {"table"},
    "th": {"table", "tbody", "tfoot", "thead", "tr"},
    "thead": {"table"},
    "tr": {"table", "tbody", "tfoot", "thead"},
}
"""Parts of tables, and the open elements that they may stand in."""
TABLE_PARENTS = _words("colgroup table tbody tfoot thead tr")
"""Elements in which text does not stay."""
CLOSED_BY: Mapping[str, AbstractSet[str]] = {
    "dd": {"dd", "dt"},
    "dt": {"dd", "dt"},
    "li": {"li"},
    "optgroup": {"optgroup", "option"},
    "option": {"option"},
}
SPACES = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What is no text."""
