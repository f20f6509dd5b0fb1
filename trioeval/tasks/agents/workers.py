"""Who works on cases: a program in a process of its own, or a model with tools."""
