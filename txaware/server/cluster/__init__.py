"""Several servers of one store: their shards, and requests that they pass on."""
