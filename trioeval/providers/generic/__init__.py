"""The provider for any service over HTTP: the suite defines the request and how to read the reply."""
