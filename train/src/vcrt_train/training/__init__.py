"""Train runs of the methods by online updates, with checkpoints."""
