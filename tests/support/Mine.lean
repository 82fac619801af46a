namespace Mine
/-- A comment. -/
theorem facts (a b c : Nat) (h : a < b) (k : b < c) : a + 1 < c + 1 ∧ 0 ≤ a := by
  have h1 : a < c := by omega
  have h2 : 0 ≤ a := Nat.zero_le a
  obtain ⟨x, hx⟩ : ∃ x, x = a := ⟨a, rfl⟩
  have h3 : a + 1 < c + 1 := by
    -- of two lines
    simpa using h1
  exact ⟨h3, h2⟩

theorem short : True := by
  trivial

theorem hole (p q : Prop) (hp : p) (hq : q) : p ∧ q := by
  have h1 : p := hp
  have h2 : q := sorry
  exact ⟨h1, h2⟩
end Mine
