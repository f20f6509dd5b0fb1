"""Results as a page that needs no other file, and the escaping of foreign text in pages."""

from trioeval.report.html_report.comparison import compare_chunks as compare_chunks
from trioeval.report.html_report.inert_text import inert_html as inert_html
from trioeval.report.html_report.inert_text import plain as plain
from trioeval.report.html_report.run_page import html_chunks as html_chunks
