"""The device plugin: finds a node's AMD GPUs, offers them to the kubelet in shares, gives each container its own."""
