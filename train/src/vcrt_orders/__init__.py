"""Where the ``verifiers`` package looks for the taskset ``vcrt-orders`` of :mod:`vcrt_train.integrations.verifiers`."""

from vcrt_train.integrations.verifiers import OrdersTaskset

__all__ = ["OrdersTaskset"]
