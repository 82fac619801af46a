"""Verifier-Certified Rule Transport: which steps commute, certified by replay; and training on whole orbits of orders."""

from __future__ import annotations

__version__ = "0.1.0"
