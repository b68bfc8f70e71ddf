"""Decides which server has which shard: evenly, and moving as few as can be."""

from collections.abc import Iterable, Mapping, Sequence

from txaware.model.shards import HOME


def assigned(
    shards: Iterable[int],
    servers: Sequence[str],
    holders: Mapping[int, str],
    named: Mapping[int, str],
) -> dict[int, str]:
    """Returns the server that is to have each shard.

    `holders` have them now. Home stays where it is, and so does what an operator has
    `named` a server for, as long as that one is there. No server has two more than
    another, as far as these allow it. Without servers nobody gets anything.
    """
    wanted: dict[int, str] = {}
    of_server: dict[str, list[int]] = {one: [] for one in servers}
    for shard in sorted(shards):
        for server in (named.get(shard), holders.get(shard)):
            if server in of_server:
                wanted[shard] = server
                of_server[server].append(shard)
                break
    free = [shard for shard in sorted(shards) if shard not in wanted]
    least, more = divmod(len(free) + len(wanted), max(1, len(servers)))
    # Those that have most keep one more than the others.
    for at, server in enumerate(sorted(servers, key=lambda one: -len(of_server[one]))):
        most = least + (1 if at < more else 0)
        movable = [
            one for one in of_server[server] if one != HOME and named.get(one) != server
        ]
        surplus = max(0, len(of_server[server]) - most)
        for shard in movable[::-1][:surplus]:
            of_server[server].remove(shard)
            free.append(shard)
    for shard in free:
        if not servers:
            wanted.pop(shard, None)
            continue
        server = min(servers, key=lambda one: len(of_server[one]))
        wanted[shard] = server
        of_server[server].append(shard)
    return wanted
