"""A shop in memory as a new user would write it: calls that read and calls that write."""

from __future__ import annotations

import vcrt


class Shop(vcrt.CallEnvironment):
    name = "shop"

    def reset(self, initial):
        return {"stock": dict(initial or {"tea": 3, "rice": 1}), "orders": {}}

    def call(self, state, name, arguments):
        return getattr(self, name)(state, **arguments)

    def look(self, state, item):
        return {"item": item, "left": state["stock"].get(item, 0)}

    def order(self, state, item, customer):
        if state["stock"].get(item, 0) < 1:
            raise vcrt.CallRefused(f"no {item} left")
        state["stock"][item] -= 1
        state["orders"].setdefault(customer, []).append(item)
        return {"ordered": item}

    def deliver(self, state, item, amount):
        state["stock"][item] = state["stock"].get(item, 0) + amount
        return "delivered"

    def list_orders(self, state):
        return {customer: sorted(items) for customer, items in sorted(state["orders"].items())}
