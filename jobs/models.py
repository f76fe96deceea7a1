"""Where the files of a config's models are. A model that is not there is an error that names its key."""

from cluster import weights
from cluster.settings import EngineSettings
from jobs.config import RunConfig, where
from sequor.errors import BadInput


def models(config: RunConfig, *roles: str) -> dict[str, weights.ModelFiles]:
    """Role -> files. Raises BadInput naming the role's key."""
    return {role: find(where(role), config.engine(role)) for role in roles}


def find(role: str, settings: EngineSettings) -> weights.ModelFiles:
    """Raises BadInput naming the role's key."""
    try:
        return weights.find(settings)
    except weights.ModelNotFound as error:
        raise BadInput(f"{role}.model: {error}") from None
