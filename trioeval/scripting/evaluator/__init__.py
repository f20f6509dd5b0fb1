"""One program alone in its folder, because Python looks for modules there first."""
