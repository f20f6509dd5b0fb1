"""How long tests wait for a server of this machine: longer than one that is busy, or stands still, needs."""

PATIENCE = 60.0
