"""JSONPath and JMESPath queries: in this process if they are cheap, else in one that can be terminated."""
