"""From replays to certificates, relation graphs and certified orbits."""
