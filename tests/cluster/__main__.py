"""`python -m tests.cluster up`: keep a cluster up until Ctrl-C, to look around in it."""

import argparse
import signal
import sys
import time
from contextlib import nullcontext

from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError, ClusterUnavailable
from tests.cluster.product import PODS, installed

CHECK_SECONDS = 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description="A real one-machine Kubernetes.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a cluster and keep it until Ctrl-C")
    up.add_argument("--no-node", action="store_true", help="control plane only: pods do not run")
    up.add_argument("--product", action="store_true", help="with the product on it, and a made GPU")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _up(node=not arguments.no_node, product=arguments.product)
    except KeyboardInterrupt:
        return 0
    except (ClusterUnavailable, ClusterError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _up(*, node: bool, product: bool) -> None:
    begun = time.monotonic()
    with Cluster(node=node) as cluster, installed(cluster) if product else nullcontext():
        sys.stdout.write(
            f"ready after {time.monotonic() - begun:.0f} s; logs in {cluster.log_folder}\n"
            f"export KUBECONFIG={cluster.kubeconfig}\n"
            f"{f'pods to try: {PODS}' if product else ''}\n"
            "Ctrl-C ends it.\n"
        )
        sys.stdout.flush()
        while True:
            cluster.check()
            time.sleep(CHECK_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
