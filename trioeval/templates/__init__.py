"""Templates: jinja2 in a sandbox, with the habits of nunjucks, bounded in time and size.

The parts, from text to text: `marks` (what is a template), `grammar` (reading it), `scopes` and `rewrite`
(what it means, or why it is refused), `sandbox` (what it may do), `values` and the filters (how values
behave), `variables` (templates inside variables), `bounds` (when to stop), `engine` (all of it for one run).
"""

from trioeval.templates.engine import Templates as Templates
from trioeval.templates.grammar import is_template as is_template
from trioeval.templates.grammar import unclosed_tag as unclosed_tag
