"""Tasks of type `prompt_eval`: prompts × providers × tests × repeat."""
