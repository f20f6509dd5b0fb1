"""Files as plain data: read by their own rules, put together, with the place of everything in them."""

from trioeval.suite.documents.combine import top_key as top_key
from trioeval.suite.documents.plain import check_plain as check_plain
from trioeval.suite.documents.read import Document as Document
from trioeval.suite.documents.read import read_document as read_document
from trioeval.suite.documents.read import read_json as read_json
from trioeval.suite.documents.read import read_json_or_yaml as read_json_or_yaml
from trioeval.suite.documents.spots import DEEPEST as DEEPEST
from trioeval.suite.documents.spots import Spot as Spot
from trioeval.suite.documents.suite_document import SuiteDocument as SuiteDocument
from trioeval.suite.documents.suite_document import read_suite_documents as read_suite_documents
from trioeval.suite.documents.suite_document import suite_files as suite_files
