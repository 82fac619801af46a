"""Do what the commands of training do, as functions."""
