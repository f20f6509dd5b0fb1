"""Calls over HTTP: the client, its settings, retries and bodies."""
