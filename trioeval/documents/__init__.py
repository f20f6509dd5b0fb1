"""Files as plain data: reading by format, combining several, and the position of every value in them."""

from trioeval.documents.document import SuiteDocument as SuiteDocument
from trioeval.documents.document import read_suite_documents as read_suite_documents
from trioeval.documents.document import suite_files as suite_files
from trioeval.documents.merge import top_key as top_key
from trioeval.documents.plain import check_plain as check_plain
from trioeval.documents.positions import DEEPEST as DEEPEST
from trioeval.documents.positions import Spot as Spot
from trioeval.documents.read import Document as Document
from trioeval.documents.read import read_document as read_document
from trioeval.documents.read import read_json as read_json
from trioeval.documents.read import read_json_or_yaml as read_json_or_yaml
