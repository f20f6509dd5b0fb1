"""Templates: jinja2 in a sandbox, with the rules of nunjucks, bounded in time and size.

`marks` finds templates, `grammar` parses them, `rewrite` translates them or refuses one with a reason,
`sandbox` and `limits` bound what they do, `values` and the filters define how values behave, `compiled`
renders a text, `variables` resolves templates inside variables, and `engine` combines these for one run. It
imports `compiled`, and with it jinja2, for the first text that is a template.
"""

from trioeval.templates.engine import Templates as Templates
from trioeval.templates.marks import is_template as is_template
from trioeval.templates.marks import unclosed_tag as unclosed_tag
