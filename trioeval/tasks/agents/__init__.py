"""Tasks of type `agent`: cases that agents work on in folders of their own until they are done."""
