"""A stand-in for kube-apiserver, in memory: the resources and verbs that the product's own parts use."""
