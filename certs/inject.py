"""Making the API server trust the authority: `caBundle` of the webhook configurations."""

import base64
import copy
import logging
from typing import Final

from kube import paths
from kube.client import ConflictError, KubeClient

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 10


async def inject_ca(client: KubeClient, configuration: str, ca: bytes) -> None:
    """Put a CA bundle into the mutating and the validating webhook configuration of this name.

    Nothing is written where it is there already. Both kinds are raw objects, so fields of newer servers stay.

    Args:
        client: the API server.
        configuration: name of both configurations.
        ca: PEM certificates.

    Raises:
        KubeError: a configuration does not exist, or the API server refused or could not be asked.
    """
    for collection in (paths.MUTATING_WEBHOOKS, paths.VALIDATING_WEBHOOKS):
        await _inject(client, paths.named(collection, configuration), base64.b64encode(ca).decode())


async def _inject(client: KubeClient, path: str, bundle: str) -> None:
    for _ in range(_ATTEMPTS):
        found = await client.get(path)
        wanted = copy.deepcopy(found)
        for webhook in wanted.get("webhooks") or ():
            webhook["clientConfig"]["caBundle"] = bundle
        if wanted == found:
            return
        try:
            await client.replace(path, wanted)
        except ConflictError:
            continue
        log.info("put the CA into %s", path)
        return
    raise ConflictError(f"{path} changed {_ATTEMPTS} times while its caBundle was written", status=409)
