"""Which brokers a command talks to."""

from __future__ import annotations

from streamplan.kafka.brokers import Brokers


def chosen_brokers(servers: str | None) -> Brokers:
    """Return the brokers of ``--bootstrap-servers``; without that option, those of this machine's stack.

    Raises:
        Refused: The client properties in the environment cannot be read.
    """
    if servers:
        return Brokers.from_environment(servers)
    from streamplan.local.brokers import local_brokers
    from streamplan.settings import Settings

    return local_brokers(Settings.from_environment())
