"""The only package that talks to the Kubernetes API server: a client with time-outs and a list-watch loop."""
