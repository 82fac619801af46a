"""Train: methods as a table, the online update, checkpoints and runs."""
