"""A Ray cluster on loopback with made-up resources, in a process of its own: Ray reads its environment when imported.

python tests/raycluster.py '{"num_gpus": 2}' ...       a node for each; prints the address; ends with its input
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.rayenv import ENVIRONMENT

HOST = "127.0.0.2"
"""Ray takes 127.0.0.1 for a mistake, and another address of the machine instead."""


def token() -> dict[str, str]:
    """Environment of a cluster and of whoever joins it."""
    return ENVIRONMENT | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def ray_cluster(*nodes: dict) -> Iterator[tuple[str, dict[str, str]]]:
    """(address, environment for whoever joins it). `nodes`: resources of each, the head first."""
    environment = os.environ | token()
    command = [sys.executable, __file__, *map(json.dumps, nodes)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            yield process.stdout.readline().strip(), environment
        finally:
            process.stdin.close()
            process.wait(timeout=60)


def main() -> None:
    from ray.cluster_utils import Cluster

    usual = {"num_cpus": 2, "node_ip_address": HOST, "include_dashboard": False}
    head, *others = (usual | json.loads(word) for word in sys.argv[1:])
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for node in others:
        cluster.add_node(wait=False, **node)
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
