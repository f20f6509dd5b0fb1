"""The provider for any service over HTTP: the suite says what to send, and how to read what comes back."""
