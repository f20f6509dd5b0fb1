"""One program alone in its folder, because Python searches for modules there first."""
