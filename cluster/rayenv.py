"""Ray's own settings, by environment. Ray reads some of them when it is imported, so `prepare` comes before that."""

import os
import secrets

ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Of its own, Ray makes workers give way to everything else on the machine.
    "RAY_worker_niceness": "0",
}
"""Where the environment does not say otherwise."""

OWN = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Of a Ray of our own. The second is how Ray, in spite of its name, is told to stay on 127.0.0.1."""


def cluster_address(configured: str | None) -> str | None:
    """The cluster to join: the configured one, else the one that a Ray job or a Slurm job was started for
    (RAY_ADDRESS); None: a Ray of our own. A http:// address there is a dashboard's, for `ray job submit` alone."""
    given = os.environ.get("RAY_ADDRESS", "")
    return configured or (None if given.startswith(("http://", "https://")) else given or None)


def prepare(configured: str | None) -> None:
    """Whoever reaches a Ray could run code. One of our own listens on loopback alone, and wants a token, made for this
    run and known to it alone, from the machine's other users. A cluster that is there already has its own way, which
    the environment says (RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH)."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if cluster_address(configured) is not None:
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")  # seconds, about: it is there, or it isn't
    else:
        os.environ |= OWN | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
