"""Where the ``verifiers`` package looks for the taskset ``vcrt-orders`` of :mod:`vcrt.integrations.verifiers`."""

from vcrt.integrations.verifiers import OrdersTaskset

__all__ = ["OrdersTaskset"]
