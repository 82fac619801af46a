"""Declare the command ``vcrt lift django``, and print what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.cli.commands import Command

if TYPE_CHECKING:
    from vcrt_django.branches import DjangoLift

django = Command(
    function="vcrt_django:lift_django",
    summary="branches of a Django project's migrations",
    view="vcrt_django.command:print_branches",
    asks_verifier=True,
    quick=True,
)


def print_branches(found: DjangoLift, *, json: bool = False) -> None:
    """Print what was found of each branch, or of each window.

    Args:
        json: Print the report for machines.
    """
    from vcrt.cli.lifted_view import print_orders
    from vcrt.cli.options import plain_console, print_document, say
    from vcrt_django.view import django_document, django_lines

    if json:
        print_document(django_document(found))
        return
    console = plain_console()
    say(console, *django_lines(found))
    for one in found.windows:
        if one.orders is not None:
            say(console, f"\n{one.window.steps[0].app}.{one.window.steps[0].migration}")
            print_orders(console, one.orders, [step.text for step in one.window.steps])
