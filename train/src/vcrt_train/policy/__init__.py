"""Score all orders of a record exactly under a language model."""
