"""The seal of a dataset: what it commits to, who signed it, and which part of the dataset is not as it was sealed."""
