"""The commands: flags in modules that cost little to import, and beside them what runs when one is given."""
