"""The program that runs JavaScript, in its own folder: Python searches for imports there first."""
