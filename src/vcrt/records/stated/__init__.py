"""Read operations by name and the relations between them, as a user states them or as another command gives them.

Read from three forms of JSON, told apart by what is in them:

- written by hand: ``{"operations": [NAME, ...], "relations": [[FIRST, SECOND, KIND], ...]}``, where KIND is
  ``commutes``, ``precedes`` or ``conflicts``, and FIRST stands before SECOND unless they commute;
- a certificate, as ``vcrt show EPISODE --json`` prints it, checked as ``vcrt verify`` checks its form and digest;
- what ``vcrt lift lean --json`` prints, or one theorem of it.

A pair without a relation may stand in either order. The input comes from anywhere, so size, depth, types and meaning
are checked. Not covered: whether a verifier agrees with the relations.
"""

from vcrt.records.stated.reading import SOURCES, read_stated
from vcrt.records.stated.record import PointedRecord, StatedRecord, pointed

__all__ = ["SOURCES", "PointedRecord", "StatedRecord", "pointed", "read_stated"]
