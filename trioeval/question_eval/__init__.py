"""Tasks of type `question_eval`: every question with its source, choices and chain."""
