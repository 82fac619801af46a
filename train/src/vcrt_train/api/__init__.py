"""Provide the commands of training as functions."""
