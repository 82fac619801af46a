"""Name a new database of a PostgreSQL server to Django; see :mod:`vcrt.environments.made_databases`."""

from __future__ import annotations

from typing import Any

from vcrt.environments import made_databases


class MadeDatabase(made_databases.MadeDatabase):
    """An empty database that was made on a server."""

    def settings(self) -> dict[str, Any]:
        """Return an entry of Django's ``DATABASES``."""
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict(self._url)
        named = {"USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
        is_near = str(parts.get("host", "")).startswith(("localhost", "127.", "::1", "/"))
        plain = parts.get("sslmode", "disable" if is_near else "")
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": self.name,
            # Forked processes cannot share an encrypted connection.
            "OPTIONS": {"sslmode": str(plain), "gssencmode": "disable"} if plain else {},
            **{key: str(parts[name]) for key, name in named.items() if parts.get(name)},
        }
