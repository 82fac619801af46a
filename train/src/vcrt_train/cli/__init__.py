"""Run the commands of training."""
