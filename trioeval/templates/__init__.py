"""Templates: jinja2 in a sandbox, with the rules of nunjucks, bounded in time and size.

`grammar` finds and parses templates, `rewrite` translates them or refuses one with a reason, `sandbox` and
`limits` bound what they do, `values` and the filters define how values behave, `variables` resolves
templates inside variables, and `engine` combines these for one run.
"""

from trioeval.templates.engine import Templates as Templates
from trioeval.templates.grammar import is_template as is_template
from trioeval.templates.grammar import unclosed_tag as unclosed_tag
