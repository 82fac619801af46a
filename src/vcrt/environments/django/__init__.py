"""Django: its migrations, and plain SQL in them, judged by SQLite or PostgreSQL."""
