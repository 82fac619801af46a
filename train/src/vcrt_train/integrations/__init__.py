"""Connect to other libraries; each module needs its own extra (``vcrt-train[trl]``, ``vcrt-train[verifiers]``).

``trl``: Orbit-GRPO for an existing TRL script. ``verl``: Orbit-GRPO as a plug-in of verl, which has no extra.
``datasets``: a frozen dataset as a ``datasets`` dataset, and back. ``verifiers``: a frozen dataset as an environment of
the ``verifiers`` package.
"""
