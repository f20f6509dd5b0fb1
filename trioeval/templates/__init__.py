"""Templates: nunjucks itself, in an engine without access to the machine, bounded in time and size.

`marks` finds templates, `plain` puts texts together that only name variables, `nunjucks` runs the engine with
`rules.js` around it, `values` are what goes in and out, `variables` resolves templates inside variables, and
`engine` combines these for one run. It opens the engine for the first text that needs it.
"""

from trioeval.templates.engine import Templates as Templates
from trioeval.templates.marks import is_template as is_template
from trioeval.templates.marks import unclosed_tag as unclosed_tag
