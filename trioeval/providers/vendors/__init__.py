"""The formats of services over HTTP: one pure adapter each."""
