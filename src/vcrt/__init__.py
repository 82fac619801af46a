"""Certify by replay which steps commute, and train policies on whole orbits of equivalent orders."""

from __future__ import annotations

__version__ = "0.1.0"
