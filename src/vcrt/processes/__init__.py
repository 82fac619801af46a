"""Run all processes of vcrt: its own workers, and the foreign programs of verifiers.

- :mod:`vcrt.processes.work` applies a function to many arguments and yields the results in the order of the arguments,
  whatever the number or kind of workers. It tries the work of a broken worker once more, alone. It calls ``workers``
  for processes of this machine, and joblib for those of a Ray or Dask cluster. It can keep two processes for a whole
  command. Most callers need only this module, and this package exports its functions.
- :mod:`vcrt.processes.workers` starts worker processes, hands out pieces of work, and kills workers that hang or die,
  with all that they have started. A worker runs the same module: it receives work, sends results or errors back, and
  ends with its parent. :mod:`vcrt.replay.completion_judge` calls this module directly and goes on meanwhile.
- :mod:`vcrt.processes.copies` copies a worker for a piece of work that must leave nothing in its memory.
- :mod:`vcrt.processes.watching` defines the record of what a worker does, and the marks by which all that a process has
  started is found and killed. A worker writes its record, its parent reads it, and the guard around each call of a
  verifier (:mod:`vcrt.environments.guarding`) notes the time limit of the call in it.
- :mod:`vcrt.processes.programs` runs a foreign program to its end within a time limit (``run_program``), or talks to
  one with limits on each answer (``BoundedProcess``). It builds the command that confines a program.
- :mod:`vcrt.processes.confinement` is what that command runs: a process that gives up its rights, with the filter of
  :mod:`vcrt.processes.system_calls`, and then becomes the program. These two modules and ``watching`` need no
  other package.

``programs`` knows nothing of workers, and ``workers`` nothing of programs: what a program's caller does not kill, the
mark of its worker finds. Each call of a verifier and each answer of a program has a time limit of its own; a worker has
none between calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt.processes.work import in_fresh_processes as in_fresh_processes
    from vcrt.processes.work import kept_now as kept_now
    from vcrt.processes.work import kept_processes as kept_processes
    from vcrt.processes.work import num_jobs as num_jobs

#: Where work is done: in processes of this machine, or of a cluster.
Backend: TypeAlias = Literal["local", "ray", "dask"]

# Confined processes and workers import this package, too: nothing is loaded before it is used.
_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__, {"vcrt.processes.work": "in_fresh_processes kept_now kept_processes num_jobs"}
)

__all__ = sorted((*_PLACE_OF, "Backend"))
