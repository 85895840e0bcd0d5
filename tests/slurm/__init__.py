"""A real Slurm on one machine: two nodes on loopback."""
