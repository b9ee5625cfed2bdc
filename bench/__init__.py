"""Benchmarks: each prints a table and the machine it ran on, and compares side by side in one run."""
