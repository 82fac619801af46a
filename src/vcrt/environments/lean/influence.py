"""Find the commands of a Lean file that may change how Lean reads the theorems behind them.

What is judged is judged without the rest of its file. That is the same only if nothing before it makes its words or
symbols mean something else: no notation, no macro, no attribute that is not known to leave terms alone, and no name of
the prelude's given to anything else. Not covered: imports, and what they bring in, as the report says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vcrt.environments.lean.grammar import GLOBAL, VOCABULARY

_NO_COMMANDS = frozenset(("have", "case", "exact", "refine"))
#: Commands that leave the reading of others alone, unless they give a name of the prelude's to something; and words
#: that begin no command at all.
_KNOWN = _NO_COMMANDS | frozenset(
    (
        "set_option",
        *("def", "abbrev", "axiom", "opaque", "inductive", "structure", "class", "instance"),
        *("theorem", "lemma", "example", "variable", "variables", "open", "namespace"),
        *("#check", "#print", "#reduce", "#synth", "import", "universe", "section", "end"),
    )
)
_NAMING = frozenset(
    (
        *("def", "abbrev", "axiom", "opaque", "inductive", "structure", "class", "instance"),
        *("theorem", "lemma", "namespace"),
    )
)
_TYPES = frozenset(("inductive", "structure", "class"))
_BINDING = frozenset(("variable", "variables"))
_MODIFIERS = frozenset(
    ("noncomputable", "private", "protected", "public", "unsafe", "partial", "nonrec", "@[simp]")
)
#: Words of commands that change it, wherever they stand: for Lean a command need not begin a line.
_CHANGING = frozenset(
    (
        *("notation", "notation3", "infix", "infixl", "infixr", "prefix", "postfix", "mixfix"),
        *("macro", "macro_rules", "syntax", "declare_syntax_cat", "elab", "elab_rules"),
        *("binder_predicate", "attribute", "alias", "export", "include", "omit", "local", "scoped"),
        *("mutual", "run_cmd", "run_elab", "run_meta", "#eval", "#eval!", "#exit", "unif_hint"),
        *("initialize", "builtin_initialize", "add_decl_doc", "register_option", "seal", "unseal"),
    )
)
_OPTIONS = (
    *("pp.", "linter.", "trace.", "maxHeartbeats", "maxRecDepth", "autoImplicit"),
    "relaxedAutoImplicit",
)
_WORD = re.compile(r"[^\W\d][\w'!?]*")
_TOKEN = re.compile(r"@\[[^\]]*\]?|#?[^\W\d][\w'!?.]*|\S")
#: Where names stand in binders, fields and constructors: behind a bracket or a bar, and in front of a colon.
_BRACKET = re.compile(r"[({\[⦃]")
_END = re.compile(r"[(){}\[\]⦃⦄|]")
_BEHIND_BAR = re.compile(rf"\|\s*({_WORD.pattern})")


def may_change_others(command: str) -> bool:
    """Whether Lean may read what follows ``command`` otherwise than without it."""
    tokens = _TOKEN.findall(command)
    first = next((token for token in tokens if token not in _MODIFIERS), "section")
    return (
        # No command begins with any other mark.
        (first not in _KNOWN and (first[0].isalpha() or first[0] in "#@"))
        or any(token in _CHANGING or _is_unknown_attribute(token) for token in tokens)
        or any(map(_changes, tokens, [*tokens[1:], ""]))
        or bool(_TYPES.intersection(tokens) and _names_of_types(command) & VOCABULARY)
        or bool(_BINDING.intersection(tokens) and _names_in_brackets(command) & VOCABULARY)
        or bool("open" in tokens and _words(tokens) & VOCABULARY)
    )


def begins_command(text: str) -> bool:
    """Whether ``text`` surely begins a command of its own, and does not go on with what stands before it."""
    first = next(iter(_TOKEN.findall(text)), "")
    known = _KNOWN | _CHANGING | _MODIFIERS
    return first in known - _NO_COMMANDS or first.startswith(("@[", "#"))


def _is_unknown_attribute(token: str) -> bool:
    return token.startswith("@[") and token not in _MODIFIERS


def _changes(keyword: str, name: str) -> bool:
    """Whether an option, or a declaration by its name, changes the reading of others."""
    if keyword == "set_option":
        return not name.startswith(_OPTIONS)
    return keyword in _NAMING and bool(VOCABULARY & _words([name]))


def _names_of_types(command: str) -> set[str]:
    """The names of fields and constructors, as far as they can be told from types."""
    groups = [part.split(":")[:-1] for part in _END.split(command) if ":" in part]
    before = [_WORD.findall(text) for group in groups for text in group]
    last = {words[-1] for words in before if words}
    # Of what stands before a colon, the last word is a name; those before it may end another field's type.
    others = {word for words in before for word in words} & GLOBAL
    return last | others | set(_BEHIND_BAR.findall(command)) | _names_in_brackets(command)


def _names_in_brackets(command: str) -> set[str]:
    parts = [_END.split(part, maxsplit=1)[0] for part in _BRACKET.split(command)[1:]]
    return _words([part.partition(":")[0] for part in parts])


def _words(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text)}
