"""The program that runs JavaScript, in a folder of its own: what it imports is looked for beside it first."""
