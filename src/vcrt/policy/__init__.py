"""The policy: exact probabilities of all orders of a record under a language model."""
