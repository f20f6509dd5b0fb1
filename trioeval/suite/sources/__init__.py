"""What a suite takes from other files: prompts, tests, variables and values."""
