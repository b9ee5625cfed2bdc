"""A stand-in for kube-scheduler: its cycle, its queue, and its calls to an extender over HTTP."""
