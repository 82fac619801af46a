"""Replay what can be replayed: the contract, the registry, the conformance kit and three environments."""
