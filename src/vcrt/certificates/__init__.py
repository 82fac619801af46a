"""Derive relations of pairs, legal orders and exclusions from replays. Pure."""
