"""Cut Rocq text into sentences, and allow those that a step or the text before the steps may hold.

The grammar is the first of three safeguards: the prover's kernel and ``Print Assumptions`` judge the sentences that
pass it, in a process that cannot write anything. It refuses what would affect the prover beyond a proof: commands,
options, plug-ins and holes. The prover decides whether a sentence means anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from vcrt.errors import MalformedInputError

MAX_STEP_CHARS = 4_000
#: The most characters before the steps of an episode.
MAX_BEFORE_CHARS = 400_000
_NAME = r"[A-Za-z_][\w']*"
_SELECTOR = re.compile(
    rf"(?:\[\s*{_NAME}\s*\]|\d+(?:-\d+)?(?:\s*,\s*\d+(?:-\d+)?)*|all)\s*:(?!=)\s*"
)
_NAMED = re.compile(rf"\[\s*{_NAME}\s*\]\s*:(?!=)\s*")
_BULLET = re.compile(r"-+|\++|\*+|\{|\}")
_OPENING_BRACE = re.compile(rf"(?:\[\s*{_NAME}\s*\]|\d+)\s*:\s*\{{")
_WORD = re.compile(r"(?<![\w'.])[A-Za-z_][\w']*")
#: Parts of names, of qualified ones too.
_PART = re.compile(r"(?<![\w'])[A-Za-z_][\w']*")
#: A tactic of a module at the beginning of a sentence: names of Rocq's commands have no full stop.
_QUALIFIED = re.compile(rf"(?P<first>{_NAME})(?:\.{_NAME})*\.[a-z_][\w']*(?![\w'.]*\.\w)")
_VISIBLE = re.compile(
    r"[^\x00-\x08\x0b-\x1f\x7f\u061c\u200b-\u200f\u2028-\u202f\u2066-\u2069\ufeff]*"
)
_DECLARATION = re.compile(rf"({_NAME})\s+({_NAME})(?![\w'.])")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Holes, checks that are postponed or omitted, other programs, clocks, and lemmas that no step names.
DENIED = _words(
    "admit give_up abstract transparent_abstract native_compute native_cast_no_check exact_no_check "
    "vm_cast_no_check change_no_check convert_concl_no_check convert_hyp_no_check timeout time "
    "restart_timer finish_timing psatz optimize_heap infoH profile ltac2 where"
)
PROVED = _words("Lemma Theorem Fact Remark Corollary Proposition Example")
DEFINED = _words("Definition Fixpoint CoFixpoint Instance")
TYPES = _words("Inductive CoInductive Record Structure Variant Class")
#: Commands that may stand before the steps.
BEFORE = (PROVED | DEFINED | TYPES) | _words(
    "Require From Import Export Section End Module Open Close Notation Infix Ltac Hint Arguments Let "
    "Implicit Variable Variables Hypothesis Hypotheses Context Generalizable Scheme Combined Bind "
    "Delimit Declare Create Coercion Canonical Function Proof Qed Defined Existing Typeclasses Opaque "
    "Include Transparent Strategy Reserved Add Set Unset Tactic Undelimit Register Goal Abort Unshelve"
)
#: Commands that leave nothing behind.
QUERIES = _words(
    "Check Print Compute Eval About Search SearchPattern SearchRewrite Locate Show Fail"
)
#: The ends of a proof.
PROOF_ENDS = ("Qed.", "Defined.", "Admitted.", "Abort.", "Save")
#: The allowed beginnings of commands with several meanings.
_ONLY: Mapping[str, tuple[str, ...]] = {
    "Declare": ("Declare Scope",),
    "Tactic": ("Tactic Notation",),
    "Abort": ("Abort.",),
    "Unshelve": ("Unshelve.",),
    "Add": tuple(
        f"Add {kind}" for kind in ("Parametric", "Morphism", "Relation", "Setoid", "Ring", "Field")
    ),
    **{
        command: tuple(
            f"{command} {option}"
            for option in (
                *("Implicit Arguments", "Strict Implicit", "Contextual Implicit"),
                *("Maximal Implicit Insertion", "Reversible Pattern Implicit", "Keyed Unification"),
                *("Asymmetric Patterns", "Default Proof Using", "Primitive Projections"),
                *("Bullet Behavior", "Elimination Schemes", "Typeclasses Unique Instances"),
            )
        )
        for command in ("Set", "Unset")
    },
}
_PREFIXES = _words("Local Global")
#: Parts of a module's head in which a ``:=`` is not the module's own.
_REFINED = re.compile(r"\([^()]*\)|\bwith\s+(?:Definition|Module)\s+[\w.']+\s*:=")
_ATTRIBUTES = re.compile(
    r'#\[\s*(?:(?:local|global|export|deprecated\((?:\s*(?:since|note)\s*=\s*"[^"]*"\s*,?)*\))\s*,?\s*)+\]\s*'
)
#: Assumptions: discharged at the end of a section, axioms outside of one.
ASSUMING = _words("Variable Variables Hypothesis Hypotheses Context")
#: The requirements in a type of modules.
ASKING = _words("Parameter Parameters Axiom Axioms Conjecture")
#: Words that begin a command even before a full stop.
_COMMANDS = BEFORE | QUERIES | ASKING | _PREFIXES | _words("Admitted Save")
#: Tactics whose outcome does not depend on the order of hypotheses.
_ORDERLESS = _words(
    "exact refine apply eapply assert enough pose rewrite specialize reflexivity symmetry transitivity split "
    "left right exists intro intros unfold simpl cbn lia ring f_equal destruct constructor exfalso "
    "discriminate replace change set cut case elim induction"
)
#: The beginnings of tactics within a sentence.
_HEADS = re.compile(r"(?:^|;|\bby\b)[\s(]*([A-Za-z_][\w']*(?:\.\w[\w']*)*|$|\W)")
#: A choice between tactics within a group or a succession of them.
_CHOICE = re.compile(r"(?:;|\bby\s*\().*\+", re.DOTALL)
_SENSITIVE = re.compile(
    r";\s*\[|\|\||\bin\s*\*|\|-|\bltac\s*:|\b(?:try|repeat|do|first|solve|match|lazymatch|multimatch|auto|eauto|trivial|"
    r"assumption|eassumption|easy|now|tauto|intuition|firstorder|subst|typeclasses)\b"
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence or a bullet, and the line on which it begins, from 1 on."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Declared:
    """The keyword, the name and the sentences of a declaration."""

    keyword: str
    name: str
    sentences: tuple[str, ...]

    @property
    def proved(self) -> bool:
        """Whether its body is a proof, which is opaque."""
        return self.sentences[-1].strip() == "Qed."


def sentences(text: str, *, where: str) -> list[Sentence]:
    """Return the sentences of a text, bullets and braces apart, without comments.

    Raise :class:`MalformedInputError` if a comment, a string or the last sentence does not end.
    """
    found, start, place, kept = list[Sentence](), 0, 0, list[str]()

    def fail(what: str) -> MalformedInputError:
        line = text.count("\n", 0, start) + 1
        return _refused(f"{where}, line {line}", what, "a whole sentence, ended by a full stop")

    while place < len(text):
        if text.startswith("(*", place):
            end = _comment_end(text, place)
            if end is None:
                raise fail("a comment without its end")
            kept.append(" ")
            place = end
            continue
        so_far = "".join(kept)
        if not so_far.strip():
            if text[place].isspace():
                place += 1
                continue
            kept, start = [], place
            mark = _BULLET.match(text, place) or _OPENING_BRACE.match(text, place)
            if mark is not None:
                found.append(Sentence(mark[0], text.count("\n", 0, place) + 1))
                place = mark.end()
                continue
        if text[place] == '"':
            end = text.find('"', place + 1)
            if end < 0:
                raise fail("a string without its end")
            kept.append(text[place : end + 1])
            place = end + 1
            continue
        if text[place] == "." and _ends_sentence(text, place):
            kept.append(".")
            found.append(Sentence("".join(kept).strip(), text.count("\n", 0, start) + 1))
            kept = []
            place += 1
            continue
        end = place + 1
        while end < len(text) and (text[end].isalnum() or text[end] in "_' "):
            end += 1
        kept.append(text[place:end])
        place = end
    if "".join(kept).strip():
        raise fail(f"{''.join(kept).strip()[:80]!r} without its end")
    return found


def read_tactic(text: str, *, where: str) -> tuple[str, ...]:
    """Return the sentences of a tactic step: bullets and tactics; raise :class:`MalformedInputError` for others."""
    parts = _parts(text, where, MAX_STEP_CHARS)
    for part in parts:
        _require_tactic(part, where)
    return parts


def read_declaration(text: str, *, where: str) -> Declared:
    """Read a declaration with its proof, if it needs one; raise :class:`MalformedInputError` for another text."""
    first, *rest = _parts(text, where, MAX_STEP_CHARS)
    allowed = f"one of {', '.join(sorted(PROVED | DEFINED | TYPES))} and a name"
    match = _DECLARATION.match(first)
    if match is None or match[1] not in PROVED | DEFINED | TYPES:
        raise _refused(where, first, allowed)
    if ":>" in first or (match[1] in PROVED) != bool(rest):
        raise _refused(where, first, "a declaration with its body, or with Proof. and Qed.")
    if rest:
        if rest[0] != "Proof." or rest[-1] not in ("Qed.", "Defined."):
            raise _refused(where, f"{rest[0]} ... {rest[-1]}", "Proof. TACTICS Qed.")
        for part in rest[1:-1]:
            _require_tactic(part, where)
    _require_words(first, where)
    return Declared(match[1], match[2], (first, *rest))


def read_statement(text: str, *, where: str) -> Declared:
    """Read the statement of a theorem without its proof; raise :class:`MalformedInputError` for another text."""
    parts = _parts(text, where, MAX_STEP_CHARS)
    match = _DECLARATION.match(parts[0])
    if len(parts) != 1 or match is None or match[1] not in PROVED:
        raise _refused(where, text, "Lemma NAME ... : TYPE.")
    _require_words(parts[0], where)
    return Declared(match[1], match[2], parts)


class Before:
    """A check of the sentences before the steps, one by one; it tracks the open sections and modules."""

    def __init__(self, *, where: str) -> None:
        self._where = where
        #: The assumptions allowed in each open section, module or type of modules.
        self._assumed = list[frozenset[str]]()
        self._room = MAX_BEFORE_CHARS

    def read(self, text: str) -> None:
        """Check the next sentence; raise :class:`MalformedInputError` if it is not allowed."""
        head = command_of(text)
        if head == "Section":
            self._assumed.append(ASSUMING)
        elif head == "Module" and ":=" not in _REFINED.sub("", text):
            within = self._assumed[-1] if self._assumed else frozenset()
            is_asking = text.split()[1:2] == ["Type"] or within >= ASKING
            self._assumed.append(ASSUMING | ASKING if is_asking else frozenset())
        elif head == "End" and self._assumed:
            self._assumed.pop()
        self._room -= len(text)
        problem = flaw_of(text, assumed=self._assumed[-1] if self._assumed else frozenset())
        if self._room < 0:
            problem = f"at most {MAX_BEFORE_CHARS:,} characters before the steps"
        if problem is not None:
            raise _refused(self._where, text, problem)


def read_before(texts: Iterable[str], *, where: str) -> tuple[str, ...]:
    """Return the sentences of a file before the steps; raise :class:`MalformedInputError` if one is not allowed."""
    texts, before = tuple(texts), Before(where=where)
    for text in texts:
        before.read(text)
    return texts


def is_query(text: str) -> bool:
    """Return whether a sentence is a command without effect."""
    word = _WORD.match(text)
    return word is not None and word[0] in QUERIES


@lru_cache(maxsize=1 << 16)
def reorders(text: str) -> bool:
    """Return whether a sentence before the steps may make their terms and tactics depend on the order of hypotheses."""
    if "ltac:" in text.replace(" ", "") or "::=" in text:
        return True
    if command_of(text) in ("Ltac", "Tactic", "Notation"):
        return not _ORDERLESS.isdisjoint(_WORD.findall(text.partition(":=")[0]))
    return command_of(text) == "Hint" and "Extern" in _WORD.findall(text)


def is_qualified(text: str) -> bool:
    """Return whether a sentence begins with a qualified tactic, such as ``Z.order``, and with no command."""
    match = _QUALIFIED.match(text)
    return match is not None and match["first"] not in _COMMANDS


def command_of(text: str) -> str:
    """Return the command of a sentence, without attributes and ``Local``; empty for tactics and bullets."""
    if is_qualified(text):
        return ""
    words = _WORD.findall(_behind(_ATTRIBUTES, text).split(":")[0])
    head = words[1] if len(words) > 1 and words[0] in _PREFIXES else words[0] if words else ""
    return head if head[:1].isupper() and not _SELECTOR.match(text) else ""


def without_prefixes(text: str) -> str:
    """Return a command without attributes, ``Local`` and ``Global``."""
    bare = _behind(_ATTRIBUTES, text)
    first, _, rest = bare.partition(" ")
    return rest.lstrip() if first in _PREFIXES else bare


@lru_cache(maxsize=1 << 16)
def flaw_of(text: str, *, assumed: frozenset[str]) -> str | None:
    """Return what a sentence before the steps must be, None if it is allowed; ``assumed`` may be assumed there."""
    if not _VISIBLE.fullmatch(text):
        return "text without control characters"
    bare = _behind(_ATTRIBUTES, text)
    if bare.startswith("#"):
        return "no attribute but local, global, export and deprecated"
    words = _WORD.findall(_without_strings(bare))
    denied = DENIED.intersection(words) - {"where"}
    if is_qualified(bare):
        denied |= DENIED.intersection(_PART.findall(_without_strings(bare)))
    if denied:
        return f"a text without {min(denied)}"
    head = command_of(text)
    if not head:
        return None
    if head in ASSUMING | ASKING and head not in assumed:
        return (
            "assumptions within a section" if head in ASSUMING else f"a command other than {head}"
        )
    if head not in BEFORE | ASKING:
        return f"a command other than {head}"
    plain = " ".join(word for word in bare.split() if word not in _PREFIXES)
    if not plain.startswith(_ONLY.get(head, (head,))):
        return f"another use of {head}"
    return None


def is_named(text: str) -> bool:
    """Return whether a tactic names its goal."""
    return _NAMED.match(text) is not None


def is_bullet(text: str) -> bool:
    """Return whether a sentence is a bullet or a brace."""
    return _BULLET.fullmatch(text) is not None or _OPENING_BRACE.fullmatch(text) is not None


def is_orderless(text: str) -> bool:
    """Return whether a tactic's outcome does not depend on the order of hypotheses; False if unsure."""
    bare = _behind(_SELECTOR, text)
    if bare.startswith("(") or _SENSITIVE.search(bare) or _CHOICE.search(bare):
        return False
    return all(word in _ORDERLESS for word in _HEADS.findall(bare))


def _parts(text: str, where: str, most: int) -> tuple[str, ...]:
    if len(text) > most:
        raise _refused(where, f"{len(text):,} characters", f"at most {most:,}")
    if not _VISIBLE.fullmatch(text) or '"' in text or "(*" in text:
        raise _refused(where, text, "text without strings, comments and control characters")
    parts = tuple(each.text for each in sentences(text, where=where))
    if not parts:
        raise _refused(where, "nothing", "a sentence")
    return parts


def _require_tactic(text: str, where: str) -> None:
    if is_bullet(text):
        return
    bare = _behind(_SELECTOR, text)
    if not bare[:1].islower() and not bare.startswith(("(", "[>")) and not is_qualified(bare):
        raise _refused(
            where,
            text,
            "a tactic, which begins with a small letter, or with a module and a full stop",
        )
    _require_words(text, where)


def _require_words(text: str, where: str) -> None:
    # Qualified names count too: Coq.Init.Ltac.give_up is give_up.
    denied = DENIED.intersection(_PART.findall(text))
    if denied or "#[" in text:
        raise _refused(where, text, f"a text without {min(denied, default='attributes')}")


def _behind(beginning: re.Pattern[str], text: str) -> str:
    """Return the text without this beginning, if it has one."""
    match = beginning.match(text)
    return text if match is None else text[match.end() :]


def _without_strings(text: str) -> str:
    return re.sub(r'"[^"]*"', "", text)


def _ends_sentence(text: str, place: int) -> bool:
    """Return whether this full stop is followed by a blank or nothing, and is not one of two."""
    after = text[place + 1 : place + 2]
    if after and not after.isspace():
        return False
    return not text.startswith("..", place - 1) or text.startswith("...", place - 2)


def _comment_end(text: str, place: int) -> int | None:
    depth = 0
    for mark in re.finditer(r"\(\*|\*\)|\"[^\"]*\"", text[place:]):
        depth += {"(*": 1, "*)": -1}.get(mark[0], 0)
        if depth == 0:
            return place + mark.end()
    return None


def _refused(where: str, found: str, expected: str) -> MalformedInputError:
    return MalformedInputError(
        "a text that may not reach Rocq", where=where, found=found[:120], expected=expected
    )
