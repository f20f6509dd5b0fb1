"""Tasks of type `question_eval`: multiple-choice questions, one chain of calls for each."""
