"""Power cuts: what a program wrote and synced, and the disks that a cut may leave."""
