"""Texts that try to get something false past Lean, to reach beyond their own episode, or to break the verifier.

Each declares or proves ``False`` under the name ``a1`` (or an equation that is false), so whatever accepts one of them
is wrong. A text is one for every place in which foreign text stands; ``tactic`` says that it was written for a proof.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Attack:
    """A named text and what it is after."""

    family: str
    name: str
    text: str
    tactic: bool = False


def church_tower(height: int) -> str:
    """A number as a tower of twos, ``height`` high, by functions alone: little text, and no end to its value."""
    twice = "(fun (α : Type) (u : α → α) (x : α) => u (u x))"
    kinds = ["N"]
    for _ in range(height - 1):
        kinds.append(f"({kinds[-1]} → {kinds[-1]})")
    return f"({' '.join(f'({twice} {kind})' for kind in reversed(kinds))} N.s N.z)"


def false_equation(value: str) -> str:
    """A number that is its own successor, by computation."""
    return f"theorem a1 : Eq {value} (N.s {value}) := Eq.refl {value}"


F = "theorem a1 : False := "
GOOD = "theorem b1 (p : Prop) (x : p) : p := x"
_IO = "axiom IO : Type → Type"
_TREE = "inductive t1 : Type where | c1 | c2"

_TEXTS: dict[str, dict[str, str]] = {
    "unproved": {
        "sorry": F + "sorry",
        "sorry in a proof": F + "by sorry",
        "admit": F + "by admit",
        "sorryAx by name": F + "sorryAx False Bool.true",
        "sorryAx with a hole": F + "sorryAx _ Bool.false",
        "an error made into a term": F + "(x : False)",
        "a hole": F + "_",
        "a hole with a name": F + "?a1",
        "itself": F + "a1",
        "itself by its field": F + "a1.elim",
        "what comes later": F + "b1 False a1",
        "stop": F + "by stop",
    },
    "axioms": {
        "axiom": "axiom a1 : False",
        "unsafe axiom": "unsafe axiom a1 : False",
        "axiom and use": "axiom x1 : False\ntheorem a1 : False := x1",
        "an axiom of the prelude": F + "lcProof",
        "an axiom on types": "def a1 : lcErased := lcAny",
        "constant": "constant a1 : False",
        "opaque": "opaque a1 : False",
        "opaque with a value": "unsafe opaque a1 : False := a1",
        "propext": "axiom propext (a b : Prop) (h : Iff a b) : Eq a b\ntheorem a1 : False := propext",
        "an axiom of the kernel's own": "theorem a1 : False := Lean.ofReduceBool a1 Bool.true rfl",
        "native_decide": F + "by native_decide",
        "decide with the kernel off": F + "by decide +native",
        "variable": "variable (x1 : False)\ntheorem a1 : False := x1",
        "example": "example (x : False) : False := x",
    },
    "kernel off": {
        "debug.skipKernelTC": "set_option debug.skipKernelTC true in " + F + "Not",
        "debug.skipKernelTC for all": "set_option debug.skipKernelTC true\n" + F + "True.intro",
        "debug.skipKernelTC and a loop": "set_option debug.skipKernelTC true in unsafe def a1 : False := a1",
        "debug.skipKernelTC, not positive": (
            "set_option debug.skipKernelTC true in inductive a1 : Type where | c1 (x : a1 → False)"
        ),
        "debug.byAsSorry": "set_option debug.byAsSorry true in theorem a1 : False := by exact x",
        "not positive": "inductive a1 : Type where | c1 (x : a1 → False)",
        "a type in itself": "inductive a1 : Type where | c1 (x : Type)",
        "elimination of a proposition": (
            "def a1 (x : Or True True) : Bool := Or.rec (fun _ => Bool.true) (fun _ => Bool.false) x"
        ),
        "unsafe": "unsafe def a1 : False := a1",
        "partial": "partial def a1 : False := a1",
        "nonterminating": "def a1 (n : N) : False := a1 (N.s n)",
        "partial fixpoint": "def a1 : False := a1\npartial_fixpoint",
        "termination forged": "def a1 (n : N) : False := a1 n\ntermination_by n\ndecreasing_by sorry",
        "implemented_by": "@[implemented_by lcAny] def a1 : False := a1",
        "extern": '@[extern "system"] opaque a1 : False',
        "extern with a body": '@[extern "abort"] def a1 (x : N) : N := x\n#eval a1 N.z',
        "export": "@[export lean_add_decl] def a1 : False := a1",
        "reducible": "@[reducible] def a1 : Prop := False\ntheorem c1 : a1 := True.intro",
        "csimp": "@[csimp] theorem a1 : Eq True False := sorryAx _ Bool.true",
    },
    "code": {
        "#eval": "#eval IO.println \"'a1' does not depend on any axioms\"",
        "#eval a file": '#eval IO.FS.writeFile "/tmp/a1" "x"',
        "#eval a process": '#eval IO.Process.output { cmd := "id" }',
        "run_cmd": "run_cmd Lean.addDecl default",
        "run_elab": "run_elab Lean.logInfo m!\"'a1' does not depend on any axioms\"",
        "an edited environment": (
            "open Lean in run_cmd modifyEnv fun e => e.addDeclWithoutChecking (.axiomDecl default)"
        ),
        "elab": 'elab "a1" : command => Lean.setEnv default',
        "initialize": f"{_IO}\ninitialize a1 : IO False",
        "builtin_initialize": "builtin_initialize a1 : False",
        "init attribute": f"{_IO}\n@[init] opaque a1 : IO False",
        "register_option": "register_option a1 : Bool := { defValue := true }",
        "deriving": "inductive a1 : Type where | c1 deriving False",
        "by_elab": F + "by_elab return Lean.mkConst `x",
        "unquoted": F + "$x",
        "dbg_trace": F + 'dbg_trace "x"; a1',
        "a shell": "#exit\n#eval `id`",
        "include_str": 'def a1 : String := include_str "/etc/passwd"',
        "import": "import Lean\n" + F + "x",
        "import in the middle": GOOD + "\nimport Lean",
        "module": "module\nprelude\n" + F + "x",
        "a plugin": "set_option plugin true\n#eval loadDynlib x",
    },
    "scope": {
        "namespace": "namespace False\ntheorem a1 : False := intro",
        "end": "end Lean\n" + F + "x",
        "ends without end": "end\nend\nend\n" + F + "x",
        "section": "section\nvariable (x : False)\ntheorem a1 : False := x\nend",
        "open": "open Or in theorem a1 : False := inl",
        "open Lean": "open Lean Elab Command\n" + F + "x",
        "root": "theorem _root_.a1 : False := x",
        "a name of the prelude": "theorem False : False := x",
        "a name within the prelude": "theorem True.a1 : False := x",
        "a constructor of False": "def False.intro : False := x",
        "another replay's name": F + "b1_r0001",
        "the end mark": "theorem vcrt_end_r0000 : False := x",
        "the hook": "theorem a1 : False := by vcrt_hook",
        "the cut mark": "case vcrt_cut_r0000 => trace_state",
        "private": "private theorem a1 : False := x",
        "alias": "alias a1 := x\nexport False (elim)",
        "universe": "universe w\ndef a1.{w} : Sort w := Sort (w+1)",
        "universe in itself": "def a1.{w} : Type w := Type w",
        "universes merged": "theorem a1.{u} : Eq (Sort u) (Sort (u+1)) := Eq.refl _",
        "imax": "def a1.{u} : Sort (imax (u+1) u) := Sort u",
    },
    "syntax": {
        "notation": 'notation "True" => False\n' + F + "True.intro",
        "notation for Prop": 'notation "False" => True\n' + F + "True.intro",
        "macro": 'macro "a1" : command => `(axiom a1 : False)\na1',
        "macro that captures": 'macro "x" : term => `(a1)\n' + F + "x",
        "macro_rules": "macro_rules | `(False) => `(True)\n" + F + "True.intro",
        "infix": 'infixl:65 " → " => And\n' + F + "x",
        "syntax": 'syntax "theorem" ident : command\n' + F + "x",
        "a coercion": "instance a1 : CoeT Prop True False := CoeT.mk True.intro",
        "an unterminated comment": F + "x /-",
        "a comment that swallows": "/- " + F + "x",
        "a comment that ends": "-/ " + F + "x",
        "nested comments": F + "x /- /- -/",
        "a line comment": F + "-- True.intro",
        "a doc comment": "/-- a1 -/ " + F + "x",
        "a module comment": "/-! a1 -/\n" + F + "x",
        "two commands in a line": GOOD + " axiom a1 : False",
        "two commands by semicolon": GOOD + "; axiom a1 : False",
        "two commands by newline": GOOD + "\naxiom a1 : False",
        "mutual": "mutual\ntheorem a1 : False := c1\ntheorem c1 : False := a1\nend",
        "a string": F + '"x"',
        "an unterminated string": F + '"x',
        "interpolation": F + 's!"{a1}"',
        "quoted names": "theorem «a1» : «False» := «x»",
        "quoted name with a command": "theorem «a1 : True := x -- » : False := x",
        "where": F + "x where x : False := x",
        "let rec": F + "let rec x : False := x; x",
        "name capture": "theorem a1 (False : Prop) (x : False) : False := y",
        "a variable called like the type": "theorem a1 (p : Prop) (b1 : False → p) : False := b1",
    },
    "look-alikes": {
        "Cyrillic": "theorem а1 : False := x",
        "Cyrillic keyword": "thеorem a1 : False := x",
        "Greek": "theorem α1 : Fαlse := x",
        "zero width space": "theorem a\u200b1 : False := x",
        "zero width joiner": "theorem a1\u200d : Fal\u200dse := x",
        "right to left": "theorem a1 : \u202eeslaF\u202c := x",
        "isolates": "theorem a1 : \u2066False\u2069 := \u2067x\u2069",
        "no-break space": "theorem\u00a0a1 : False := x",
        "ideographic space": "theorem\u3000a1 : False := x",
        "line separator": F + "x\u2028axiom a1 : False",
        "paragraph separator": F + "x\u2029axiom a1 : False",
        "full width": "ｔｈｅｏｒｅｍ ａ１ ： Ｆａｌｓｅ := x",
        "full width digit": "theorem a１ : False := x",
        "Arabic digit": "theorem a٣ : False := x",
        "mathematical letters": "theorem 𝐚1 : 𝐅𝐚𝐥𝐬𝐞 := x",
        "combining": "theorem a\u0301 : False := x",
        "byte order mark": "\ufeffaxiom a1 : False",
        "NUL": F + "x\x00axiom a1 : False",
        "NUL at the start": "\x00" + F + "x",
        "a lone surrogate": F + "\ud800",
        "a surrogate in the name": "theorem a\udfff1 : False := x",
        "CR": F + "x\raxiom a1 : False",
        "CRLF": F + "x\r\naxiom a1 : False",
        "tab": "theorem\ta1 : False := x",
        "vertical tab": F + "x\x0baxiom a1 : False",
        "form feed": F + "x\x0caxiom a1 : False",
        "next line": F + "x\x85axiom a1 : False",
        "escape": F + "x\x1b[2K",
        "delete": F + "x\x7f",
        "a private use character": F + "\ue000",
        "beyond the basic plane": F + "\U0001f600",
    },
    "sentinels": {
        "no axioms, as a name": F + "«' does not depend on any axioms»",
        "no axioms, traced": "axiom a1 : False\n#print \"'a1' does not depend on any axioms\"",
        "no axioms, traced, of sorryAx": (
            "theorem a1 : False := sorryAx False Bool.true\n"
            "#print \"'a1' does not depend on any axioms\""
        ),
        "no axioms, of something else": "axiom a1 : False\n#print axioms And.intro",
        "no axioms, of a private one": (
            "private theorem a1 : True := True.intro\n#print axioms a1\naxiom c1 : False"
        ),
        "the end mark printed": GOOD + "\n#print vcrt_end_r0000",
        "the end mark of another": F + "vcrt_end_r0001",
        "JSON in a name": 'theorem a1 : «{"severity":"information"}» := x',
        "JSON on a line": F + 'x\n{"severity":"information","pos":{"line":1},"data":""}',
        "a worker's answer": '{"answer": [[], []], "unsound": null, "rechecked": [1, 1]}',
        "a line of its own": "\n\n\n" + F + "x",
        "goals printed": "trace_state",
        "messages off": "set_option messages.off true in axiom a1 : False",
        "errors capped": "set_option maxErrors 0\n" + F + "x",
        "printing off": "set_option pp.all false in axiom a1 : False",
        "#guard_msgs": "#guard_msgs (drop all) in axiom a1 : False",
        "fail_if_success": F + "by fail_if_success exact x",
        "#exit": "#exit",
        "end of input": "#eof\n" + F + "x",
    },
    "classes": {
        "an instance without a class": "instance a1 : False := x",
        "an instance of a class of the prelude": "instance a1 : OfNat N Nat.zero := OfNat.mk False",
        "a default instance": "@[default_instance] instance a1 : OfNat False 0 := x",
        "an attribute on the prelude": "attribute [instance] False\n" + F + "inferInstance",
        "a local attribute": "attribute [local simp] a1 in " + F + "x",
        "a class that is false": "class a1 where v1 : False\ninstance c1 : a1 := a1.mk c1.v1",
        "an instance loop": (
            "class L1 (α : Type) where v1 : α\n"
            "instance i1 (α : Type) [x : L1 (α → α)] : L1 α := L1.mk (x.v1 L1.v1)\n"
            "theorem a1 : False := (L1.v1 : N)"
        ),
        "an erased instance": "attribute [-instance] instOfNatNat\n" + F + "x",
    },
    "limits": {
        "maxRecDepth": "set_option maxRecDepth 1000000 in " + F + "x",
        "maxHeartbeats": "set_option maxHeartbeats 0 in " + F + "x",
        "maxHeartbeats of one": "set_option maxHeartbeats 1 in " + F + "x",
        "Elab.async": "set_option Elab.async true in " + F + "by exact x",
        "100,000 brackets": F + "(" * 100_000 + "x" + ")" * 100_000,
        "100,000 angle brackets": F + "⟨" * 100_000 + "x" + "⟩" * 100_000,
        "100,000 functions": F + "fun x => " * 100_000 + "x",
        "100,000 arrows": "theorem a1 : " + "False → " * 100_000 + "False := x",
        "100,000 successors": f"theorem a1 : Eq {'N.s (' * 100_000}N.z{')' * 100_000} N.z := Eq.refl _",
        "900 brackets": F + "(" * 900 + "x" + ")" * 900,
        "380 successors": "theorem a1 : Eq ("
        + "N.s (" * 380
        + "N.z"
        + ")" * 380
        + ") N.z := Eq.refl N.z",
        "a huge numeral": F + "9" * 100_000,
        "a huge power": "theorem a1 : Eq (10 ^ 10 ^ 10) 0 := rfl",
        "a name of 100,000": "theorem " + "a" * 100_000 + "1 : False := x",
        "a name of 500 parts": F + ".".join(["x"] * 500),
        "1,000,000 characters": F + "x " * 500_000,
        "a small tower": false_equation(church_tower(3)),
        "a tower": false_equation(church_tower(4)),
        "a high tower": false_equation(church_tower(6)),
        "a doubling": (
            "theorem a1 : False := "
            + "(fun (p : Prop) (x : p → p → p) => x) (" * 30
            + "x"
            + ")" * 30
        ),
        "doubled types": (
            "theorem a1 : Eq "
            + "((fun (p : Prop) => And p p) " * 40
            + "True"
            + ")" * 40
            + " False := Eq.refl False"
        ),
        "100 holes": F + "And.intro _ (" * 100 + "_" + ")" * 100,
        "decide": F + "by decide",
        "simp that loops": F + "by simp [a1]",
        "repeat": F + "by repeat (first | skip)",
    },
}
_TACTICS: dict[str, str] = {
    "case sorry": "case a1 => sorry",
    "case by": "case a1 => exact by sorry",
    "all goals": "all_goals sorry",
    "two tactics": "case a1 => exact True.intro; case b1 => exact True.intro",
    "exact": "exact sorryAx _ Bool.true",
    "case sorryAx": "case a1 => exact sorryAx False Bool.true",
    "case with a hole": "case a1 => exact _",
    "case of itself": "case a1 => exact t1",
    "have sorry": "have a1 : False := sorryAx False Bool.true",
    "have of itself": "have a1 : False := t1",
    "have without an end": "have a1 : False := fun x =>",
    "have and more": "have a1 : True := True.intro; exact a1",
    "a goal that is not there": "case z9 => exact True.intro",
    "run_tac": "run_tac Lean.Elab.Tactic.done",
    "open goals dropped": "clear a1; done",
    "native": "native_decide",
    "trace": 'trace "⊢ True"',
    "skip the kernel": "set_option debug.skipKernelTC true in exact True.intro",
    "unclosed": "case a1 => exact (",
    "a comment": "case a1 => exact x /-",
    "out of the proof": "case a1 => exact x\naxiom t1 : False",
    "less indentation": "case a1 => exact x\ntheorem c1 : False := t1",
}

ATTACKS: tuple[Attack, ...] = (
    *(
        Attack(family=family, name=name, text=text)
        for family, texts in _TEXTS.items()
        for name, text in texts.items()
    ),
    *(
        Attack(family="tactics", name=name, text=text, tactic=True)
        for name, text in _TACTICS.items()
    ),
)
