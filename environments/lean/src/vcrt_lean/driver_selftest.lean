theorem facts (p q : Prop) (hp : p) (hq : q) : p ∧ q := by
  have h1 : p := hp
  have h2 : q := hq
  have h3 : p ∧ q := ⟨h1, h2⟩
  exact h3

theorem hole (p q : Prop) (hp : p) : p ∧ (q → q) := by
  have h1 : p := hp
  have h2 : q → q := sorry
  exact ⟨h1, h2⟩

theorem goals (p q : Prop) (hp : p) (hq : q) : p ∧ q := by
  refine ⟨?a, ?b⟩
  case b => exact hq
  case a => exact hp
