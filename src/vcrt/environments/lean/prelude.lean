prelude
/-
The whole world of an episode: Lean without its standard library, plus the few propositions, data types and tactics
that steps may use. Nothing here is imported, so the same text means the same on every installation of one version.
-/
set_option autoImplicit false
set_option Elab.async false -- else a theorem that fails leaves its statement behind for later steps
set_option genCtorIdx false
set_option genInjectivity false
set_option linter.all false
set_option pp.proofs true -- a state is read from what Lean prints, so nothing may be elided
set_option pp.deepTerms true

universe u v

/- Names that Lean's compiler looks up whenever it meets a definition. -/
unsafe axiom lcErased : Type
unsafe axiom lcAny : Type
unsafe axiom lcProof {p : Prop} : p

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
inductive N : Type where
  | z : N
  | s (n : N) : N

/- What the elaborator of `syntax` and of tactic blocks needs. The order of ParserDescr's constructors is Lean's own. -/
axiom sorryAx (α : Sort u) (synthetic : Bool) : α
