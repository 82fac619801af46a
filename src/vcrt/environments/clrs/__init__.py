"""CLRS: the algorithms of dm-clrs as the verifier."""
