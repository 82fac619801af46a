"""The numbers that the paper prints, beside those of an experiment."""
