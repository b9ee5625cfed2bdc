"""A real one-machine Kubernetes for tests and demonstrations."""
