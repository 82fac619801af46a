"""Texts of Lean files that say one thing to Lean and could be taken to say another, and what Lean itself makes of them.

What Lean makes of a text as it stands is asked of a process of its own, with Lean's own notations: nothing of a
spelling comes between. A text whose steps vcrt accepts as they stand must be one that Lean accepts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcrt.certification.lattice_replay import replay_merged
from vcrt.certification.lean_lifting import lift_lean
from vcrt.certification.lifted_files import FileLift
from vcrt.environments.lean.environment import LeanEnvironment
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.lifting import LeanLifted, lift_file
from vcrt.environments.lean.program import read_program
from vcrt.environments.lean.rereading import Difference, difference
from vcrt.environments.lean.toolchain import embedded_toolchain

SOURCE = Path(__file__).parents[2] / "src"
_READER = """
import json, sys
from pathlib import Path
from vcrt.environments.lean.elaborator import Elaborator
from vcrt.environments.lean.sameness import Notations
from vcrt.environments.lean.rendering import PRELUDE
from vcrt.environments.lean.values import Library

elaborator = Elaborator(Library(Path(sys.argv[1])))
notations = Notations(elaborator)
prelude, _ = elaborator.run(elaborator.empty_state(), PRELUDE.removeprefix("prelude"))
state = notations.on(prelude)
texts = json.load(sys.stdin)
print(json.dumps([[m for _, s, m in elaborator.run(state, t)[1] if s == "error"] for t in texts]))
sys.stdout.flush()
import os
os._exit(0)
"""


#: Where Lean keeps the parsers of its notations, by the names of their syntax.
PARSERS = {
    "term_↔_": "term___u2194__",
    "term_<->_": "term___x3c_x2d_x3e__",
    "term_∨_": "term___u2228__",
    "term_∧_": "term___u2227__",
    "term¬_": "term_xac__",
    "term_=_": "term___x3d__",
    "term_≠_": "term___u2260__",
    "term∃_,_": "term_u2203___x2c__",
    "termExists_,_": "termExists___x2c__",
    "tacticHave__": "Lean_Parser_Tactic_tacticHave____",
    "tacticRefine_lift_": "Lean_Parser_Tactic_tacticRefine__lift__",
    "focus": "Lean_Parser_Tactic_focus",
    "rotateRight": "Lean_Parser_Tactic_rotateRight",
}
_PARSER_READER = """
import json, sys
from pathlib import Path
from vcrt.environments.lean.values import Library, name_parts

NODE, TRAILING, SYMBOL, WORD, CATEGORY, EITHER = 3, 4, 5, 6, 7, 12
library = Library(Path(sys.argv[1]))

def strings(parser):
    if parser.tag in (SYMBOL, WORD, EITHER):
        return [parser.field(k).text().strip() for k in range(2 if parser.tag == EITHER else 1)]
    return [s for part in parts(parser) for s in strings(part)]

def parts(parser):
    return [parser.field(k) for k in range(1, parser.num_fields) if parser.tag in (1, 2)]

def right(parser):
    if parser.tag == CATEGORY:
        return parser.field(1).number()
    return next((right(part) for part in reversed(parts(parser))), 0)

found = []
for variable in json.load(sys.stdin):
    parser = library.variable("l_" + variable)
    trailing = parser.tag == TRAILING
    assert trailing or parser.tag == NODE
    body = parser.field(3 if trailing else 2)
    found.append({
        "kind": name_parts(parser.field(0))[-1],
        "strength": parser.field(1).number(),
        "left": parser.field(2).number() if trailing else None,
        "symbols": strings(body),
        "right": right(body),
    })
print(json.dumps(found))
"""


def lean_parsers() -> list[dict[str, object]]:
    """What the parsers of Lean's own notations are: strengths, symbols, and what their last part needs."""
    return _asked(_PARSER_READER, list(PARSERS.values()))


def lean_errors(texts: Sequence[str]) -> list[list[str]]:
    """The errors that Lean finds in each text as it stands, after the prelude and Lean's own notations."""
    return _asked(_READER, list(texts))


def _asked(program: str, question: object) -> Any:
    folder = embedded_toolchain().libraries
    assert folder is not None
    found = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE)},
    )
    return json.loads(found.stdout)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A text, and what is expected: what Lean says of it as it stands, and what vcrt may say.

    ``lean`` is whether Lean accepts it. vcrt's outcome is ``legal`` (accepted as it stands), ``illegal`` (lifted, and
    refused in the order in which it stands), or the cause of its refusal.
    """

    name: str
    text: str
    lean: bool
    outcome: str


def _proof(binders: str, kind: str, *steps: str, end: str = "exact h") -> str:
    lines = "".join(f"  {step}\n" for step in (*steps, end))
    return f"theorem t1 {binders} : {kind} := by\n{lines}"


def _twice(binders: str, kind: str, given: str | None = None) -> str:
    """A theorem that is its own hypothesis, in two steps; or one that follows from another text."""
    return _proof(
        f"{binders} (x : {given or kind})", kind, f"have h : {kind} := x", f"have g : {kind} := x"
    )


_P = "(p q : Prop)"
_F = f"{_P} (f : Prop → Prop)"
READINGS = (
    # A binder of the name of what a symbol stands for.
    Reading(
        name="the issue's capture",
        text=(
            "theorem c1 (p : Prop) : ∀ (And : Prop → Prop → Prop) (x : And p p), p ∧ p := fun And x => x\n"
            "theorem d1 (p : Prop) (x : p) : p := x\n"
        ),
        lean=False,
        outcome="illegal",
    ),
    *(
        Reading(
            name=f"{word} is bound, and {symbol} is not it",
            text=_twice(f"{_P} ({word} : {kind})", said, given),
            lean=False,
            outcome="illegal",
        )
        for word, symbol, kind, said, given in (
            ("And", "∧", "Prop → Prop → Prop", "p ∧ q", "And p q"),
            ("Or", "∨", "Prop → Prop → Prop", "p ∨ q", "Or p q"),
            ("Iff", "↔", "Prop → Prop → Prop", "p ↔ q", "Iff p q"),
            ("Not", "¬", "Prop → Prop", "¬p", "Not p"),
            ("Eq", "=", "Prop → Prop → Prop", "p = q", "Eq p q"),
            ("Eq", "≠", "Prop → Prop → Prop", "p ≠ q", "Not (Eq p q)"),
            ("Not", "≠", "Prop → Prop", "p ≠ q", "Not (p = q)"),
            ("Exists", "∃", "(N → Prop) → Prop", "∃ n : N, p", "Exists fun n : N => p"),
        )
    ),
    *(
        Reading(
            name=f"{word} is bound beside {symbol}",
            text=_twice(f"{_P} ({word} : Prop → Prop)", f"{word} ({said})"),
            lean=True,
            outcome="legal",
        )
        for word, symbol, said in (
            ("And", "∧", "p ∧ q"),
            ("Or", "∨", "p ∨ q"),
            ("Iff", "↔", "p ↔ q"),
            ("Not", "¬", "¬p"),
            ("Eq", "≠", "p ≠ q"),
            ("Exists", "∃", "∃ n : N, n = n"),
        )
    ),
    Reading(
        name="∧ under fun And",
        text=_twice(_P, "p ∧ q", "(fun And : Prop → Prop → Prop => And p q) (fun a b => a ∧ b)"),
        lean=True,
        outcome="legal",
    ),
    Reading(
        name="a binder in brackets alone",
        text=_twice(_P, "∀ (And), p ∧ And → And = p", "∀ (And), And p And → And = p"),
        lean=False,
        outcome="lean",
    ),
    Reading(
        name="a step of the name And",
        text=_proof(
            f"{_P} (x : p) (y : q)",
            "p ∧ q",
            "have And : p := x",
            "have h : p ∧ q := ⟨And, y⟩",
        ),
        lean=True,
        outcome="grammar",
    ),
    Reading(
        name="a case of the name Eq",
        text=(
            "theorem t1 (p : Prop) (x : p) : p ∧ N.z = N.z := by\n  refine ⟨?Eq, ?Not⟩\n"
            "  case Eq => exact x\n  case Not => exact Eq.refl N.z\n"
        ),
        lean=True,
        outcome="grammar",
    ),
    Reading(
        name="N is another type",
        text=_twice("(N : Type) (z : N)", "∃ n : N, n = z"),
        lean=True,
        outcome="legal",
    ),
    Reading(
        name="N.z of another type",
        text=_twice("(N : Type)", "∃ n : N, n = N.z"),
        lean=False,
        outcome="lean",
    ),
    Reading(
        name="True is false",
        text=_proof(
            "(True : Prop)", "True", "have h : True := True.intro", "have g : Prop := True"
        ),
        lean=False,
        outcome="illegal",
    ),
    # What stands side by side.
    Reading(name="f ¬p", text=_twice(_F, "f ¬p"), lean=True, outcome="legal"),
    Reading(name="f ¬p is f (¬p)", text=_twice(_F, "f ¬p", "f (¬p)"), lean=True, outcome="legal"),
    Reading(
        name="f ¬p is not f Not p",
        text=_twice("(p : Prop) (f : (Prop → Prop) → Prop → Prop)", "f Not p", "f ¬p"),
        lean=False,
        outcome="lean",
    ),
    Reading(name="Or q ¬p", text=_twice(_P, "Or q ¬p"), lean=True, outcome="legal"),
    Reading(name="Or ¬p q", text=_twice(_P, "Or ¬p q", "Or (¬p) q"), lean=False, outcome="lean"),
    Reading(name="f ∃ n, p", text=_twice(_F, "f ∃ n : N, p"), lean=False, outcome="grammar"),
    Reading(name="f ∀ n, p", text=_twice(_F, "f ∀ n : N, p"), lean=False, outcome="reading"),
    Reading(
        name="f ¬p = q", text=_twice(_F, "f ¬p = q", "f (¬(p = q))"), lean=True, outcome="legal"
    ),
    Reading(
        name="f ¬p = q is not (f ¬p) = q",
        text=_twice(_F, "f ¬p = q", "(f ¬p) = q"),
        lean=False,
        outcome="illegal",
    ),
    Reading(name="¬p ∧ q", text=_twice(_P, "¬p ∧ q", "(¬p) ∧ q"), lean=True, outcome="legal"),
    Reading(
        name="p → q ∨ p ∧ q ↔ q",
        text=_twice(_P, "p → q ∨ p ∧ q ↔ q", "(p → (q ∨ (p ∧ q))) ↔ q"),
        lean=True,
        outcome="legal",
    ),
    Reading(
        name="two terms side by side over two lines",
        text=_proof(f"{_P} (x : p)", "p", "have h : p := x\n    ∧ p", "have g : p := x"),
        lean=False,
        outcome="illegal",
    ),
    Reading(
        name="∃ x ≠ y", text=_twice("(y : N)", "∃ x ≠ y, x = x"), lean=False, outcome="grammar"
    ),
    # White space, comments and characters that are not seen.
    *(
        Reading(
            name=f"U+{ord(space):04X} for a space",
            text=_twice(_P, f"p ∧{space}q"),
            lean=False,
            outcome="grammar",
        )
        for space in "\t\xa0\u1680\u2003\u2007\u2028\u2029\u202f\u205f\u3000\x0b\x0c\x85\u200b\u2060\ufeff\u00ad"
    ),
    Reading(
        name="a name parted by a zero-width space",
        text=_twice("(p\u200bq : Prop)", "p\u200bq ∧ p\u200bq"),
        lean=False,
        outcome="grammar",
    ),
    Reading(
        name="letters that Lean does not know",
        text=_twice("(é² : Prop)", "é² ∧ é²"),
        lean=False,
        outcome="reading",
    ),
    Reading(
        name="a Cyrillic letter",
        text=_twice("(р p : Prop)", "р ∧ p"),
        lean=False,
        outcome="reading",
    ),
    Reading(
        name="a comment that turns the line round",
        text=_proof(
            f"{_P} (x : p)",
            "p",
            "have h : p := x /- \u202e noiton on \u202c -/",
            "have g : p := x",
        ),
        lean=True,
        outcome="grammar",
    ),
    Reading(
        name="a comment that Lean ends later",
        text=_twice(_P, "p ∧ /--/ -/ q", "p ∧ q"),
        lean=False,
        outcome="reading",
    ),
    Reading(
        name="a comment that Lean does not open twice",
        text=_twice(_P, "p ∧ /-/- -/ q", "p ∧ q"),
        lean=True,
        outcome="legal",
    ),
    Reading(
        name="a remark in the midst of a term",
        text=_twice(_P, "p ∧ /-- no comment to Lean -/ q", "p ∧ q"),
        lean=False,
        outcome="reading",
    ),
    Reading(
        name="a name in «»",
        text=_twice("(«And» q : Prop)", "«And» ∧ q"),
        lean=True,
        outcome="grammar",
    ),
    Reading(
        name="a theorem that goes on at the margin",
        text=_twice(_P, "p").replace("exact h\n", "exact h\n|> f\n"),
        lean=False,
        outcome="reading",
    ),
    Reading(
        name="an end that goes on at the margin",
        text=_twice("(p q : Prop) (f : p → q)", "p").replace("exact h\n", "exact h\n∧ q\n"),
        lean=False,
        outcome="reading",
    ),
)


def wrongly_read(folder: Path) -> list[str]:
    """The names of the :data:`READINGS` of which Lean or vcrt makes something else than is expected."""
    errors = lean_errors([reading.text for reading in READINGS])
    return [
        reading.name
        for reading, said in zip(READINGS, errors, strict=True)
        if reading.lean == bool(said) or outcome(reading.text, folder) != reading.outcome
    ]


def wrongly_undisturbed(folder: Path) -> list[str]:
    """The commands of :data:`CHANGING` behind which a theorem is lifted all the same."""
    path = folder / "user.lean"
    found = []
    for command in CHANGING:
        path.write_text(command + CHANGED, encoding="utf-8")
        if lift_file(path).lifted:
            found.append(command)
    return found


def outcome(text: str, folder: Path) -> str:
    """What vcrt makes of a text, as :class:`Reading` has it; of several refusals the first."""
    path = folder / "user.lean"
    path.write_bytes(text.encode())
    return _outcome(lift_lean(path, LeanEnvironment(), _merged))


def _outcome(found: FileLift) -> str:
    if found.theorems:
        (theorem,) = found.theorems
        return "illegal" if theorem.orders.reference_refusal is not None else "legal"
    return found.refused[0].cause


def _merged(environment, episodes):
    return [merged.evidence for merged in replay_merged(environment, episodes)]


CHANGED = _twice("(p q : Prop)", "p ∧ q")
#: Commands after which the very text of :data:`CHANGED` may say something else.
CHANGING = (
    'local infix:35 " ∧ " => Or\n',
    'local notation p " ∧ " q => p\n',
    "macro_rules | `($a ∧ $b) => `($a ∨ $b)\n",
    'notation3 "x" => True.intro\n',
    "attribute [macro term_∧_] x1\n",
    "@[macro term_∧_] def x1 : N := N.z\n",
    "include x\n",
    "export Foo (And)\n",
    "def Foo.And (p q : Prop) : Prop := p\n",
    "namespace Foo\n  def And (p q : Prop) : Prop := p\n",
    'theorem a1 : p := x\n  infixr:35 " ∧ " => Or\n',
    "inductive N : Type where | z\n",
    "inductive Foo : Type where\n  | And\n",
    "structure Foo where\n  Or And : Prop\n",
    "abbrev N := Bool\n",
    "variable (N : Type)\n",
    "variable {p And : Prop}\n",
    "open Foo renaming Or → And\n",
    'open Foo in notation "∧" => Or\n',
    "set_option hygiene false\n",
    "run_cmd x\n",
    "#eval x\n",
    "private noncomputable def Not : N := N.z\n",
    "initialize_simps_projections Foo\n",
)
#: Commands after which it says what it said.
IDLE = (
    "import Lean\n",
    "import Mathlib\nopen Nat Function\nuniverse u v\nset_option pp.all true\n",
    "namespace Foo\n",
    "section\nvariable {α β : Type} (r s : α → Prop)\n",
    "/-- Remark. -/\n@[simp] theorem a1 (p : Prop) (x : p) : p := x\n",
    "structure Foo where\n  left : Prop\n  value : N\n",
    "inductive Foo : Type where\n  | red\n  | green (p : Prop)\n",
    "def twice (n : N) : N := n\n#check twice\nexample : True := True.intro\n",
    "/-! # A title -/\n-- a remark\n",
)


#: Names for binders: those that symbols stand for, others of the prelude's, and some that get another name.
NAMES = ("And", "Or", "Not", "Iff", "Eq", "Exists", "True", "False", "Bool", "N", "p", "q'", "x₁")
_KINDS = {"proposition": "Prop", "function": "Prop → Prop", "value": "Nn"}
_INFIX = {"↔": 20, "→": 25, "∨": 30, "∧": 35, "=": 50, "≠": 50}
_LOOSE, _TIGHT = 0, 1024


def random_statements(seed: int, count: int) -> list[str]:
    """Theorems that are their own hypotheses, in two steps, with binders of dangerous names."""
    rng = np.random.default_rng(seed)
    return [_statement(rng) for _ in range(count)]


def _statement(rng: np.random.Generator) -> str:
    names = [str(name) for name in rng.choice(NAMES, size=rng.integers(2, 6), replace=False)]
    kinds = [str(kind) for kind in rng.choice(list(_KINDS), size=len(names))]
    scope = {"Pp": "proposition", **dict(zip(names, kinds, strict=True))}
    binders = " ".join(f"({name} : {_KINDS[kind]})" for name, kind in scope.items())
    formula, _ = _formula(rng, scope, int(rng.integers(2, 6)))
    return (
        f"theorem t1 (Nn : Type) {binders} (Hh : {formula}) : {formula} := by\n"
        f"  have Aa : {formula} := Hh\n  have Bb : {formula} := Aa\n  exact Bb\n"
    )


def _formula(rng: np.random.Generator, scope: dict[str, str], depth: int) -> tuple[str, int]:
    """A formula over the names in ``scope``, and how tightly it is bound; mostly without needless brackets."""

    def part(least: int, names: dict[str, str] = scope) -> str:
        text, strength = _formula(rng, names, depth - 1)
        return f"({text})" if strength < least or rng.random() < 0.2 else text

    def one_of(kind: str) -> str:
        return str(rng.choice([name for name, known in scope.items() if known == kind]))

    form = str(rng.choice(("word", "not", "two", "two", "apply", "bind", "bind")))
    if depth <= 0 or form == "word":
        return one_of("proposition"), _TIGHT
    if form == "not":
        return f"¬{part(40)}", _TIGHT
    if form == "two":
        symbol = str(rng.choice(list(_INFIX)))
        own = _INFIX[symbol]
        if symbol in "=≠" and "value" in scope.values() and rng.random() < 0.5:
            return f"{one_of('value')} {symbol} {one_of('value')}", own
        right = own if symbol in "→∨∧" else own + 1
        return f"{part(own + 1)} {symbol} {part(right)}", own
    if form == "apply" and "function" in scope.values():
        text, strength = _formula(rng, scope, depth - 1)
        # A ¬ that stands as an argument takes what follows it, as far as that is stronger.
        bare = strength == _TIGHT and rng.random() < 0.7
        return f"{one_of('function')} {text if bare else f'({text})'}", 40 if bare else 1023
    name, kind = str(rng.choice(NAMES)), str(rng.choice(list(_KINDS)))
    bound = f"{name} : {_KINDS[kind]}"
    inner = part(_LOOSE, {**scope, name: kind})
    return (
        f"{rng.choice(('∀', '∃'))} {bound if rng.random() < 0.5 else f'({bound})'}, {inner}",
        _LOOSE,
    )


def compared(lifted: LeanLifted) -> Difference | None:
    """What Lean reads otherwise than it is spelt."""
    program = read_program(lifted.episode, max_chars=Limits().max_step_chars)
    steps = tuple(range(lifted.episode.num_operations))
    return difference(lifted.originals, program, steps, Limits())


def misread_statements(texts: Sequence[str], folder: Path) -> list[tuple[str, str]]:
    """The texts that Lean refuses, that are not lifted, or of which it makes something else than of their spelling."""
    wrong = []
    path = folder / "user.lean"
    for text, errors in zip(texts, lean_errors(texts), strict=True):
        path.write_text(text, encoding="utf-8")
        found = lift_file(path)
        if errors or found.refused:
            wrong.append((text, errors[0] if errors else found.refused[0].found))
            continue
        (lifted,) = found.lifted
        other = compared(lifted)
        if other is not None:
            wrong.append((text, other.reason))
    return wrong
