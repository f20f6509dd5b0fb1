"""A message bus of files: many processes append to it, in whatever language, and nothing is lost."""
