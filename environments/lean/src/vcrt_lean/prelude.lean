prelude
/-
The whole world of an episode: Lean without its standard library, plus the few propositions, data types and tactics
that steps may use. Nothing is imported, so the same text means the same on every installation of a Lean version.
-/
set_option autoImplicit false
-- Elaboration in the background would leave the statement of a failed theorem behind for later steps.
set_option Elab.async false
set_option genCtorIdx false
set_option genInjectivity false
set_option linter.all false
-- States are read from what Lean prints: nothing in it may be elided or left to be guessed.
set_option pp.explicit true
set_option pp.universes true
set_option pp.fullNames true
set_option pp.fieldNotation false
set_option pp.funBinderTypes true
set_option pp.piBinderTypes true
set_option pp.letVarTypes true
set_option pp.proofs true
set_option pp.deepTerms true

universe u v

/- What Lean's compiler looks up by name. -/
unsafe axiom lcErased : Type
unsafe axiom lcAny : Type

/- What steps may use. -/
inductive True : Prop where
  | intro : True
inductive False : Prop
def Not (a : Prop) : Prop := a → False
structure And (a b : Prop) : Prop where
  intro :: (left : a) (right : b)
inductive Or (a b : Prop) : Prop where
  | inl (h : a) : Or a b
  | inr (h : b) : Or a b
structure Iff (a b : Prop) : Prop where
  intro :: (mp : a → b) (mpr : b → a)
inductive Exists {α : Sort u} (p : α → Prop) : Prop where
  | intro (w : α) (h : p w) : Exists p
inductive Eq {α : Sort u} : α → α → Prop where
  | refl (a : α) : Eq a a
inductive Bool : Type where
  | false : Bool
  | true : Bool
inductive N : Type where
  | z : N
  | s (n : N) : N

/- What Lean's elaborator of `syntax` and of tactic blocks looks up by name. -/
axiom sorryAx (α : Sort u) (synthetic : Bool) : α
inductive Nat where
  | zero : Nat
  | succ (n : Nat) : Nat
class OfNat (α : Type u) (_ : Nat) where
  ofNat : α
@[default_instance 100] instance instOfNatNat (n : Nat) : OfNat Nat n where
  ofNat := n
-- What stands for a term that failed refers to these two; without them every error would turn into another one.
inductive Unit : Type where
  | unit : Unit
def Function.const {α : Sort u} (β : Sort v) (a : α) : β → α := fun _ => a
-- Looked up, and not found to have instances, where a term does not have the expected type.
def outParam (α : Sort u) : Sort u := α
class CoeFun (α : Sort u) (γ : outParam (α → Sort v)) where
  coe : (f : α) → γ f
class CoeSort (α : Sort u) (β : outParam (Sort v)) where
  coe : α → β
class CoeT (α : Sort u) (_ : α) (β : Sort v) where
  coe : β
structure String where
  make :: (unused : Bool)

namespace Lean
inductive Name where
  | anonymous : Name
  | str (pre : Name) (s : String)
  | num (pre : Name) (i : Nat)
abbrev SyntaxNodeKind := Name
@[extern "l_Lean_Name_mkStr1"] opaque Name.mkStr1 (a : String) : Name := .anonymous
@[extern "l_Lean_Name_mkStr2"] opaque Name.mkStr2 (a b : String) : Name := .anonymous
@[extern "l_Lean_Name_mkStr3"] opaque Name.mkStr3 (a b c : String) : Name := .anonymous
@[extern "l_Lean_Name_mkStr4"] opaque Name.mkStr4 (a b c d : String) : Name := .anonymous
/- The parser reads values of this type straight from memory: the order of the constructors is that of Lean itself. -/
inductive ParserDescr where
  | const (name : Name)
  | unary (name : Name) (p : ParserDescr)
  | binary (name : Name) (p₁ p₂ : ParserDescr)
  | node (kind : SyntaxNodeKind) (prec : Nat) (p : ParserDescr)
  | trailingNode (kind : SyntaxNodeKind) (prec lhsPrec : Nat) (p : ParserDescr)
  | symbol (val : String)
  | nonReservedSymbol (val : String) (includeIdent : Bool)
  | cat (catName : Name) (rbp : Nat)
  | parser (declName : Name)
  | nodeWithAntiquot (name : String) (kind : SyntaxNodeKind) (p : ParserDescr)
  | sepBy (p : ParserDescr) (sep : String) (psep : ParserDescr) (allowTrailingSep : Bool)
  | sepBy1 (p : ParserDescr) (sep : String) (psep : ParserDescr) (allowTrailingSep : Bool)
  | unicodeSymbol (val asciiVal : String) (preserveForPP : Bool)

namespace Parser.Tactic
syntax (name := exact) "exact " term : tactic
syntax (name := refine) "refine " term : tactic
syntax caseArg := ident
syntax (name := case) "case " sepBy1(caseArg, " | ") " => " tacticSeq : tactic
syntax (name := traceState) "trace_state" : tactic
end Parser.Tactic
end Lean
