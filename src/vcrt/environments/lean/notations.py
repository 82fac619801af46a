"""Add Lean's own notations to the prelude, so that Lean reads a user's text as it stands, not as vcrt spells it.

The prelude has no notations. Here the parsers of ``∧ ∨ ¬ = ≠ ↔ ∃`` and of the ``have`` tactic are declared as in
Lean's ``Init`` (a test compares them with Lean's own), and each is expanded by the macro that is compiled into Lean.
That has Lean's hygiene: what a symbol stands for cannot be captured by a binder. Like
:mod:`vcrt.environments.lean.elaborator`, for one commit of Lean only. Not covered: whether a spelling says the same
(see :mod:`vcrt.environments.lean.sameness`).
"""

from __future__ import annotations

from vcrt.environments.lean.elaborator import Elaborator, ElaboratorError, State

#: What the notations are, in the words of the prelude; ``Ne`` is what ``≠`` stands for.
NOTATIONS = r"""
abbrev Lean.TrailingParserDescr := Lean.ParserDescr
def Ne {α : Sort u} (a b : α) : Prop := Not (Eq a b)
syntax:20 (name := «term_↔_») term:21 " ↔ " term:21 : term
syntax:20 (name := «term_<->_») term:21 " <-> " term:21 : term
syntax:30 (name := «term_∨_») term:31 unicode(" ∨ ", " \\/ ") term:30 : term
syntax:35 (name := «term_∧_») term:36 unicode(" ∧ ", " /\\ ") term:35 : term
syntax:1024 (name := «term¬_») "¬" term:40 : term
syntax:50 (name := «term_=_») term:51 " = " term:51 : term
syntax:50 (name := «term_≠_») term:51 " ≠ " term:51 : term
namespace Lean
syntax binderIdent := orelse(ident, hole)
syntax unbracketedExplicitBinders := many1(ppSpace binderIdent) optional(" : " term)
syntax bracketedExplicitBinders := "(" withoutPosition(many1(binderIdent ppSpace) ": " term) ")"
syntax explicitBinders := orelse(many1(ppSpace bracketedExplicitBinders), unbracketedExplicitBinders)
end Lean
syntax:1022 (name := «term∃_,_») "∃" Lean.explicitBinders ", " term : term
syntax:1022 (name := «termExists_,_») "exists" Lean.explicitBinders ", " term : term
namespace Lean.Parser.Tactic
syntax:1022 (name := tacticHave__) "have" letConfig letDecl : tactic
syntax:1022 (name := tacticRefine_lift_) "refine_lift " term : tactic
syntax:1022 (name := focus) "focus " tacticSeq : tactic
syntax:1022 (name := rotateRight) "rotate_right" optional(ppSpace num) : tactic
end Lean.Parser.Tactic
"""

_TACTIC = ("Lean", "Parser", "Tactic")
_TACTIC_MACROS = "Lean_Parser_Tactic___aux__Init__Tactics______macroRules__Lean__Parser__Tactic__"
#: The syntax that Lean's compiled macros expand: the parts of its name, and the name of the macro.
MACROS: dict[tuple[str, ...], str] = {
    ("term_↔_",): "__aux__Init__Core______macroRules__term___u2194____1",
    ("term_<->_",): "__aux__Init__Core______macroRules__term___x3c_x2d_x3e____1",
    ("term_∨_",): "__aux__Init__Notation______macroRules__term___u2228____1",
    ("term_∧_",): "__aux__Init__Notation______macroRules__term___u2227____1",
    ("term¬_",): "__aux__Init__Notation______macroRules__term_xac____1",
    ("term_=_",): "__aux__Init__Notation______macroRules__term___x3d____1",
    ("term_≠_",): "__aux__Init__Core______macroRules__term___u2260____1",
    ("term∃_,_",): "__aux__Init__NotationExtra______macroRules__term_u2203___x2c____1",
    ("termExists_,_",): "__aux__Init__NotationExtra______macroRules__termExists___x2c____1",
    (*_TACTIC, "tacticHave__"): f"{_TACTIC_MACROS}tacticHave______1",
    (*_TACTIC, "tacticRefine_lift_"): f"{_TACTIC_MACROS}tacticRefine__lift____1",
}
_MACRO_ARGUMENTS = 3


class Notations:
    """Lean's notations. Create it before the first state: it tells Lean about the macros."""

    def __init__(self, elaborator: Elaborator) -> None:
        self._elaborator = elaborator
        self._state: State | None = None
        library = elaborator.library
        for kind, macro in MACROS.items():
            # Boxed: as Lean calls a macro that it knows only as a value.
            function = library.on_objects(f"l_{macro}___boxed", _MACRO_ARGUMENTS)
            library.register("l_Lean_Elab_macroAttribute", kind, macro, function, _MACRO_ARGUMENTS)

    def on(self, prelude: State) -> State:
        """The state after the prelude and the notations, made once."""
        if self._state is None:
            state, said = self._elaborator.run(prelude, NOTATIONS)
            if said:
                raise ElaboratorError(f"the notations are not accepted: {said}")
            self._state = state
        return self._state
