"""Seal a dataset, sign the seal, and find which part of the dataset is not as it was sealed."""
