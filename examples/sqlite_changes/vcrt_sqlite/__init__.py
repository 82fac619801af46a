"""SQLite schema and data changes as an environment of vcrt."""
