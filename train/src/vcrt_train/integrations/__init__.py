"""Connect to other libraries; each module needs an extra of its own (``vcrt-train[trl]``, ``vcrt-train[verifiers]``).

``trl``: Orbit-GRPO for an existing TRL script. ``verl``: the same as a plug-in of verl, which has no extra.
``datasets``: a frozen dataset as a ``datasets`` dataset, and back. ``verifiers``: the same as an environment of the
``verifiers`` package.
"""
