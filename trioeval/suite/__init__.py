"""The suite file: its data, the tests and prompts that it names, and the rows that they expand to."""
