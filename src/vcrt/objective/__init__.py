"""The terms of the objective, one small file each, and their sum."""
