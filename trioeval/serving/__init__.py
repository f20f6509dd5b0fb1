"""Servers of HTTP in this program: the live view, `trioeval limits serve` and the page of metrics.

They share one door (`door`), one reading of requests (`framing`, `conversation`), one bound for all
connections (`listening`), and one folder that only its user can look into (`private_folder`, `token_files`).
"""
