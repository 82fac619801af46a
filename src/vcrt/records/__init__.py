"""The sealed audit view, the anonymous policy view, and frozen datasets of both."""
