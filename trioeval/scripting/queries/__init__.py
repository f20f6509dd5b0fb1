"""Queries of JSONPath and JMESPath: in this process where they are cheap, else in one that can be ended."""
