"""A real Slurm cluster on one machine: two nodes on loopback."""
