"""The live view: pages that show running runs, and the connection that watches and steers runs."""
