"""Replay episodes, and make certificates, relation graphs and certified orbits of the replays."""
