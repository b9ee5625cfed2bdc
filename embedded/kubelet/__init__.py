"""A stand-in for the kubelet: the device plugin API over real sockets, and containers that are plain processes."""
