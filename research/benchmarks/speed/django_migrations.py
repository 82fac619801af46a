"""Compare Django's own Operation.reduce with what the database says, on the migrations of published packages.

    python research/benchmarks/speed/django_migrations.py --python PYTHON [--database URL]

PYTHON has Django and the packages. Every pair of operations that stand next to each other in a migration is run in
both orders from the state before it; pairs with RunPython or RunSQL are counted apart. Writes
results/django_migrations.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from vcrt.certificates.lattice import Lattice
from vcrt.certificates.pairs import report_orders
from vcrt.errors import VcrtError
from vcrt.replay.lattice_replay import replay_merged
from vcrt_django.lifting import DjangoProject
from vcrt_django.toolchain import server_url

RESULTS = Path(__file__).parents[1] / "results" / "django_migrations.json"
CONTRIB = tuple(
    f"django.contrib.{name}"
    for name in "admin auth contenttypes sessions sites flatpages redirects messages".split()  # noqa: SIM905
)
#: By distribution: its apps, and settings that they ask for.
PACKAGES: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "django": ((), {}),
    "wagtail": (
        (
            *(f"wagtail.{name}" for name in ("users", "admin", "documents", "images", "embeds")),
            *(f"wagtail.{name}" for name in ("search", "snippets", "sites", "contrib.forms")),
            *(f"wagtail.contrib.{name}" for name in ("redirects", "search_promotions")),
            *("wagtail", "modelcluster", "taggit"),
        ),
        {"WAGTAIL_SITE_NAME": "x", "WAGTAILADMIN_BASE_URL": "http://localhost"},
    ),
    "django-allauth": (
        (
            *("allauth", "allauth.account", "allauth.socialaccount", "allauth.usersessions"),
            *("allauth.mfa", "allauth.idp.oidc"),
        ),
        {},
    ),
    "django-oscar": (
        (
            "oscar.config.Shop",
            *(
                f"oscar.apps.{name}.apps.{name.title()}Config"
                for name in (
                    *("address", "analytics", "basket", "catalogue", "checkout"),
                    *("communication", "customer", "dashboard", "offer", "order", "partner"),
                    *("payment", "search", "shipping", "voucher", "wishlists"),
                )
            ),
            "oscar.apps.catalogue.reviews.apps.CatalogueReviewsConfig",
            *(
                f"oscar.apps.dashboard.{name}.apps.{name.title()}DashboardConfig"
                for name in (
                    *("reports", "users", "orders", "catalogue", "offers", "partners", "pages"),
                    *("ranges", "reviews", "vouchers", "communications", "shipping"),
                )
            ),
            *("treebeard", "django_tables2", "widget_tweaks", "haystack", "phonenumber_field"),
        ),
        {
            "HAYSTACK_CONNECTIONS": {
                "default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}
            }
        },
    ),
    "django-cms": (
        ("cms", "menus", "treebeard", "sekizai"),
        {"CMS_CONFIRM_VERSION4": True, "LANGUAGES": [("en", "x")]},
    ),
}


def project(folder: Path, apps: tuple[str, ...], settings: dict[str, object]) -> Path:
    """A project with these apps."""
    lines = [
        "SECRET_KEY = 'x'",
        "SITE_ID = 1",
        "STATIC_URL = '/static/'",
        "DEFAULT_AUTO_FIELD = 'django.db.models.AutoField'",
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}",
        "LANGUAGE_CODE = 'en'",
        f"INSTALLED_APPS = {[*CONTRIB, *apps]!r}",
        "MIDDLEWARE = ['django.contrib.sessions.middleware.SessionMiddleware', "
        "'django.contrib.auth.middleware.AuthenticationMiddleware', "
        "'django.contrib.messages.middleware.MessageMiddleware'] + "
        f"{['allauth.account.middleware.AccountMiddleware'] * ('allauth' in apps)!r}",
        "TEMPLATES = [{'BACKEND': 'django.template.backends.django.DjangoTemplates', 'APP_DIRS': True, 'OPTIONS': "
        "{'context_processors': ['django.template.context_processors.request', "
        "'django.contrib.auth.context_processors.auth', "
        "'django.contrib.messages.context_processors.messages']}}]",
    ]
    if "oscar.config.Shop" in apps:
        lines.insert(0, "from oscar.defaults import *")
    lines += [f"{name} = {value!r}" for name, value in settings.items()]
    (folder / "bench_settings.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def measured(name: str, python: str, database: str | None) -> dict[str, object]:
    """What the pairs of one package's migrations do; those of Django's own apps are counted with Django alone."""
    apps, settings = PACKAGES[name]
    found, refused = Counter[str](), list[str]()
    disagreements, odd = list[dict[str, object]](), list[dict[str, object]]()
    with tempfile.TemporaryDirectory() as folder:
        place = project(Path(folder), apps, settings)
        one = DjangoProject(
            place, settings="bench_settings", server=server_url(database), python=python
        )
        try:
            verifier = one.versions().verifier
            own = {app.rsplit(".", 1)[-1] for app in CONTRIB}
            begun = time.perf_counter()
            operations = one.windows(None, 1)
            pairs = one.windows(None, 2, every=1)
            if apps:
                operations = [w for w in operations if w.steps[0].app not in own]
                pairs = [w for w in pairs if w.steps[0].app not in own]
            transitions = 0
            for window in pairs:
                kind = (
                    "rows" if {s.kind for s in window.steps} & {"RunPython", "RunSQL"} else "plain"
                )
                try:
                    (merged,) = replay_merged(one, [window.episode])
                except VcrtError as error:
                    refused.append(f"{window.steps[0].label}: {error.where}: {error.found}")
                    continue
                transitions += len(Lattice.of(merged.tree).transitions)
                (pair,) = report_orders(merged).pairs
                relation = str(pair.relation)
                found[f"{kind} {relation}"] += 1
                if window.reduces[0]:
                    found[f"{kind} {relation}, reduce knows"] += 1
                    if relation != "commutes":
                        odd.append(
                            {"steps": [s.label for s in window.steps], "reason": pair.reason}
                        )
                elif relation == "conflicts":
                    disagreements.append({"steps": [s.label for s in window.steps]})
            seconds = time.perf_counter() - begun
        finally:
            one.close()
    return {
        "package": name,
        "verifier": verifier,
        "operations": len(operations),
        "migrations": len({(w.steps[0].app, w.steps[0].migration) for w in operations}),
        "pairs": len(pairs),
        "found": dict(sorted(found.items())),
        "false claims of reduce": odd,
        "other state": disagreements,
        "no verdict": refused,
        "transitions": transitions,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--database")
    parser.add_argument("--packages", nargs="+", default=list(PACKAGES))
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    asked = [arguments.python, "-m", "pip", "list", "--format", "json"]
    versions = {p["name"].lower(): p["version"] for p in json.loads(subprocess.check_output(asked))}
    rows = []
    for name in arguments.packages:
        try:
            row = {
                "version": versions.get(name),
                **measured(name, arguments.python, arguments.database),
            }
        except VcrtError as error:
            row = {"version": versions.get(name), "package": name, "error": str(error)}
        print(
            json.dumps({k: v for k, v in row.items() if k not in ("other state", "no verdict")}),
            flush=True,
        )
        rows.append(row)
    arguments.output.write_text(json.dumps({"packages": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
