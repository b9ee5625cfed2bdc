"""Stand-ins for Kubernetes in one process: an API server, a kube-scheduler, kubelets. The product needs none of them.

They exist so that the product's real services can be shown, tested and measured on any machine. `tests/contract` says
what of the API server agrees with a real one.
"""
