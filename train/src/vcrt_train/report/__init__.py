"""Make the tables, figures and self-contained page of a report."""
