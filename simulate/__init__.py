"""What would a cluster do with a load? Virtual time, and no I/O; every decision is made by the scheduler's own code."""
