"""The HTTP servers of this program: the live view, `trioeval limits serve` and the metrics page.

They share the access rules (`door`), the parser of requests (`framing`, `conversation`), one bound for all
connections (`listening`), and one folder that only its user can read (`private_folder`, `token_files`).
"""
