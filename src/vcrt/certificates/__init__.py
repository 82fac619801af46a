"""Judge what replays show: relations of pairs, legal orders, exclusions. Pure."""
