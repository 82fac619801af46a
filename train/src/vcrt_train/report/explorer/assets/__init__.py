"""Hold what the explorer's page is made of: its template, its style and its scripts."""
