/-
Judge the steps of tactic proofs by the Lean that runs this file: `lean --run driver.lean`.

One JSON request a line on standard input, one answer a line on standard output, behind `vcrt-answer `:

* `{"do": "open", "file": PATH, "path": [FOLDER, ...]}` elaborates a file, with `.olean` files looked for in the folders
  first, and lists its theorems whose proof is a tactic block, with the block's own steps and their places;
* `{"do": "replay", "theorem": K, "first": I, "count": N, "sequences": [[S, ...], ...]}` runs steps I to I+N-1 of theorem K
  in other orders, from the state that the theorem's own steps before them lead to, each prefix once. What a step logs as
  an error refuses it, as nothing is recovered from. A sequence of all N steps is then put into the theorem's own text,
  which Lean elaborates as a whole, kernel included.

The theorem's command is elaborated from the state before it, with one syntax node in the place of its proof, whose
elaborator is this program's. Only interfaces of Lean that have long stayed as they are are used. Not covered: what is
equal among states (whoever asks compares the texts), and files that print to standard output while they are elaborated
in the form of an answer.
-/
import Lean

open Lean Elab Meta

namespace VcrtDriver

/-- A theorem of the file: what its command is elaborated in, the command, and the block of its proof. -/
structure Theorem where
  before : Frontend.State
  command : Syntax
  block : Syntax
  steps : Array Syntax

/-- What the node in the place of a proof is to do, and what it found. -/
structure Job where
  steps : Array Syntax := #[]
  first : Nat := 0
  count : Nat := 0
  sequences : List (List Nat) := []
  whole : Option (List Nat) := none
  nodes : Array Json := #[]
  accepted : Array (List Nat) := #[]
  name : Option Name := none
  finished : Bool := false
  deriving Inhabited

def nodeKind : SyntaxNodeKind := `vcrtDriver.proof

/-! ### Syntax -/

def isAtom (stx : Syntax) (words : List String) : Bool :=
  match stx with
  | .atom _ word => words.contains word
  | _ => false

/-- The part `theorem NAME ...` of a command, wherever it stands. -/
partial def theoremIn? (stx : Syntax) : Option Syntax :=
  if stx.getNumArgs > 1 && isAtom stx[0] ["theorem", "lemma"]
      && stx[1].getKind == ``Parser.Command.declId then
    some stx
  else
    stx.getArgs.findSome? theoremIn?

/-- `by` as a term, and as the whole of a declaration. -/
def blockKinds : List SyntaxNodeKind :=
  [`Lean.Parser.Term.byTactic, `Lean.Parser.Term.byTactic']

/-- The term behind `:=`, if it is a tactic block. -/
partial def blockIn? (stx : Syntax) : Option Syntax :=
  if stx.getKind == ``Parser.Command.declValSimple then
    if blockKinds.contains stx[1].getKind then some stx[1] else none
  else
    stx.getArgs.findSome? blockIn?

/-- The steps of a block, as it separates them by lines or semicolons. -/
def stepsOf (block : Syntax) : Array Syntax :=
  let sequence := block[1][0]
  if sequence.getKind == ``Parser.Tactic.tacticSeq1Indented then
    sequence[0].getSepArgs
  else
    sequence[1].getSepArgs

/-- The same syntax with `new` in the place of `old`, which is known by where it begins. -/
partial def replaced (old new stx : Syntax) : Syntax :=
  if stx.getKind == old.getKind && stx.getPos? == old.getPos? then new
  else match stx with
    | .node info kind args => .node info kind (args.map (replaced old new))
    | _ => stx

def withNode (block : Syntax) : Syntax :=
  let node := Syntax.node (SourceInfo.fromRef block) nodeKind #[]
  let sequence := mkNode ``Parser.Tactic.tacticSeq1Indented #[mkNullNode #[node]]
  block.setArg 1 (mkNode ``Parser.Tactic.tacticSeq #[sequence])

partial def kindsIn (stx : Syntax) (found : NameSet := {}) : NameSet :=
  stx.getArgs.foldl (fun found arg => kindsIn arg found) (found.insert stx.getKind)

/-! ### States -/

/-- The subterms of one text, each once, numbered as they come. -/
structure Table where
  lines : Array String := #[]
  numbers : PersistentHashMap String Nat := {}
  terms : PersistentHashMap Expr Nat := {}

def line (text : String) : StateT Table MetaM Nat := do
  let table ← get
  match table.numbers.find? text with
  | some number => return number
  | none =>
    let number := table.lines.size
    set { table with lines := table.lines.push text, numbers := table.numbers.insert text number }
    return number

def levelText : Level → String
  | .zero => "0"
  | .succ u => s!"S({levelText u})"
  | .max u v => s!"max({levelText u}, {levelText v})"
  | .imax u v => s!"imax({levelText u}, {levelText v})"
  | .param name => toString name
  | .mvar _ => "?"

/-- How free variables and holes are called in a state, and what was declared before the proof. -/
structure Names where
  variables : PersistentHashMap FVarId String := {}
  holes : PersistentHashMap MVarId String := {}
  base : Environment

/-- Write a term without names of bound variables, notations and marks; a constant that the proof made, as what it is. -/
partial def write (names : Names) (e : Expr) : StateT Table MetaM Nat := do
  if let some number := (← get).terms.find? e then
    return number
  let number ← match e with
    | .mdata _ e => write names e
    | .bvar i => line s!"#{i}"
    | .fvar id =>
      let other := ((← getLCtx).find? id).map fun decl => toString decl.userName.eraseMacroScopes
      line s!"variable {(names.variables.find? id <|> other).getD ""}"
    | .mvar id =>
      let type ← write names (← instantiateMVars (← id.getType))
      line s!"hole {(names.holes.find? id).getD ""} {type}"
    | .sort u => line s!"Sort {levelText u}"
    | .const name levels =>
      if names.base.contains name then
        line s!"{name} {levels.map levelText}"
      else match (← getEnv).find? name with
        | some info =>
          let type ← write names info.type
          match info with
          | .defnInfo definition => line s!"made {type} {← write names definition.value}"
          | _ => line s!"made {type}"
        | none => line s!"{name} {levels.map levelText}"
    | .app f a => line s!"app {← write names f} {← write names a}"
    | .lam _ type body _ => line s!"lambda {← write names type} {← write names body}"
    | .forallE _ type body _ => line s!"forall {← write names type} {← write names body}"
    | .letE _ type value body _ =>
      line s!"let {← write names type} {← write names value} {← write names body}"
    | .lit (.natVal n) => line s!"number {n}"
    | .lit (.strVal s) => line s!"text {repr s}"
    | .proj name i e => line s!"field {name} {i} {← write names e}"
  modify fun table => { table with terms := table.terms.insert e number }
  return number

def textOf (names : Names) (terms : List Expr) : MetaM String := do
  let (numbers, table) ← (terms.mapM fun e => do write names (← instantiateMVars e)).run {}
  return String.intercalate "\n" (table.lines.toList ++ [toString numbers])

/-- A goal: hypotheses by the names that a step can use; one that has none is known by what it says. -/
def goalText (base : Environment) (holes : PersistentHashMap MVarId String) (goal : MVarId) : MetaM Json :=
  goal.withContext do
    let lctx ← getLCtx
    let mut names : Names := { holes, base }
    let mut hypotheses : Array Json := #[]
    let mut used : List String := []
    for decl in lctx do
      if decl.isImplementationDetail then
        continue
      let text ← textOf names (decl.type :: decl.value?.toList)
      let plain := toString decl.userName.eraseMacroScopes
      let reachable := !decl.userName.hasMacroScopes &&
        ((lctx.findFromUserName? decl.userName).map (·.fvarId)) == some decl.fvarId
      let mut name := plain
      if !reachable then
        let unnamed := s!"{plain}✝{hash text}"
        name := s!"{unnamed}.{(used.filter (· == unnamed)).length}"
        used := unnamed :: used
      names := { names with variables := names.variables.insert decl.fvarId name }
      hypotheses := hypotheses.push (Json.arr #[Json.str name, Json.str text])
    let instances ← (← getLocalInstances).mapM fun one =>
      return Json.str ((names.variables.find? one.fvar.fvarId!).getD "")
    return Json.mkObj [
      ("tag", Json.str (toString (← goal.getTag).eraseMacroScopes)),
      ("hypotheses", Json.arr hypotheses),
      ("instances", Json.arr instances),
      ("target", Json.str (← textOf names [← goal.getType]))]

def goalsText (base : Environment) : Tactic.TacticM Json := do
  Tactic.pruneSolvedGoals
  let goals ← Tactic.getGoals
  let tags ← goals.mapM fun goal => return toString (← goal.getTag).eraseMacroScopes
  let mut holes : PersistentHashMap MVarId String := {}
  let mut number := 0
  for (goal, tag) in goals.zip tags do
    let name := if (tags.filter (· == tag)).length == 1 then tag else s!"{tag}.{number}"
    holes := holes.insert goal name
    number := number + 1
  let texts ← goals.mapM fun goal => goalText base holes goal
  return Json.arr texts.toArray

/-! ### Steps -/

def pathJson (path : List Nat) : Json := Json.arr (path.map (toJson ·)).toArray

def firstError (messages : MessageLog) : IO (Option String) := do
  for message in messages.toList do
    if message.severity matches .error then
      return some (← message.data.toString)
  return none

/-- Run one step with a limit on its work of its own: why it is refused, or none. What ran into a limit is thrown on.
What was logged is kept, which `try` among tactics would take back. -/
def attempt (step : Syntax) : Tactic.TacticM (Option String) := do
  let messages := (← getThe Core.State).messages
  modifyThe Core.State ({ · with messages := {} })
  let heartbeats ← IO.getNumHeartbeats
  let context ← read
  let state ← get
  let run : TermElabM (Option String × Tactic.State) := do
    try
      let (_, after) ← withTheReader Core.Context ({ · with initHeartbeats := heartbeats }) <|
        Term.withoutErrToSorry <| (Tactic.withoutRecover (Tactic.evalTactic step) context).run state
      return (none, after)
    catch e =>
      return (some (← e.toMessageData.toString), state)
  let (thrown, after) ← run
  set after
  let logged ← firstError (← getThe Core.State).messages
  modifyThe Core.State ({ · with messages := messages })
  return logged <|> thrown

/-- Steps that must be accepted. -/
def require (steps : List Syntax) : Tactic.TacticM Unit := do
  for step in steps do
    if let some text ← attempt step then
      throwErrorAt step text

partial def explore (job : IO.Ref Job) (base : Environment) (window : Array Syntax) (path : List Nat)
    (sequences : List (List Nat)) : Tactic.TacticM Unit := do
  let goals ← goalsText base
  job.modify fun j => { j with
    nodes := j.nodes.push (Json.mkObj [("path", pathJson path), ("goals", goals)])
    accepted := if path.length == window.size then j.accepted.push path else j.accepted }
  let saved ← Tactic.saveState
  for head in (sequences.filterMap List.head?).eraseDups do
    let rest := sequences.filterMap fun sequence =>
      if sequence.head? == some head then some (sequence.drop 1) else none
    match ← attempt window[head]! with
    | some text =>
      let node := Json.mkObj [("path", pathJson (path ++ [head])), ("refused", Json.str text)]
      job.modify fun j => { j with nodes := j.nodes.push node }
    | none => explore job base window (path ++ [head]) rest
    saved.restore

/-- The elaborator of the node in the place of a proof. -/
def proof (job : IO.Ref Job) : Tactic.Tactic := fun _ => do
  let j ← job.get
  let base ← getEnv
  job.set { j with name := ← Term.getDeclName? }
  let steps := j.steps.toList
  let window := (steps.drop j.first).take j.count
  require (steps.take j.first)
  match j.whole with
  | none =>
    explore job base window.toArray [] j.sequences
    job.modify ({ · with finished := true })
    throwError "explored"
  | some order =>
    require (order.map fun i => window.getD i Syntax.missing)
    require (steps.drop (j.first + j.count))
    Tactic.done
    job.modify ({ · with finished := true })

/-! ### Requests -/

def elaborated (context : Frontend.Context) (one : Theorem) : IO Frontend.State := do
  let command := replaced one.block (withNode one.block) one.command
  let (_, after) ← ((Frontend.elabCommandAtFrontend command).run context).run one.before
  return after

/-- What Lean makes of the theorem with its steps in another order: why it is refused, and what it rests on. -/
def ending (context : Frontend.Context) (job : IO.Ref Job) (one : Theorem) (order : List Nat) : IO Json := do
  job.modify ({ · with whole := some order, finished := false })
  let after ← elaborated context one
  let found ← job.get
  let refused ← firstError after.commandState.messages
  let name := found.name.getD Name.anonymous
  let mut fields := [("path", pathJson order)]
  if let some text := refused then
    fields := ("refused", Json.str text) :: fields
  else if !found.finished || (after.commandState.env.find? name).isNone then
    fields := ("refused", Json.str s!"no theorem {name} came of it") :: fields
  else
    let (axioms, _) ← ((Frontend.runCommandElabM (collectAxioms name)).run context).run after
    let texts := axioms.map fun name => Json.str (toString name)
    fields := ("axioms", Json.arr texts) :: fields
  return Json.mkObj fields

def replay (context : Frontend.Context) (job : IO.Ref Job) (one : Theorem) (request : Json) :
    ExceptT String IO Json := do
  let first ← liftExcept (request.getObjValAs? Nat "first")
  let count ← liftExcept (request.getObjValAs? Nat "count")
  let sequences ← liftExcept (request.getObjValAs? (Array (Array Nat)) "sequences")
  unless first + count ≤ one.steps.size && sequences.all (·.all (· < count)) do
    throw "no such steps"
  job.set { steps := one.steps, first, count, sequences := (sequences.map Array.toList).toList }
  let after ← elaborated context one
  let found ← job.get
  unless found.finished do
    throw ((← firstError after.commandState.messages).getD "the proof was not reached")
  let mut ends : Array Json := #[]
  for order in found.accepted do
    ends := ends.push (← ending context job one order)
  return Json.mkObj [("nodes", Json.arr found.nodes), ("ends", Json.arr ends)]
where
  liftExcept {α : Type} : Except String α → ExceptT String IO α := fun e => ExceptT.mk (pure e)

def placeOf (map : FileMap) (stx : Syntax) : List (String × Json) :=
  match stx.getPos?, stx.getTailPos? with
  | some start, some stop =>
    let (a, b) := (map.toPosition start, map.toPosition stop)
    [("start", toJson start.byteIdx), ("stop", toJson stop.byteIdx), ("line", toJson a.line),
     ("column", toJson a.column), ("end_line", toJson b.line), ("end_column", toJson b.column)]
  | _, _ => []

def theoremJson (map : FileMap) (one : Theorem) : Json :=
  let env := one.before.commandState.env
  let tactics := (Parser.parserExtension.getState env).categories.find? `tactic
  let isTactic (kind : Name) := (tactics.map (·.kinds.contains kind)).getD false
  let texts (kinds : List Name) := Json.arr (kinds.map fun kind => Json.str (toString kind)).toArray
  let step (stx : Syntax) :=
    let kinds := (kindsIn stx).toList
    Json.mkObj (placeOf map stx ++
      [("tactics", texts (kinds.filter isTactic)), ("kinds", texts (kinds.filter (!isTactic ·)))])
  let part := (theoremIn? one.command).getD one.command
  Json.mkObj (placeOf map part ++
    [("name", Json.str (toString part[1][0].getId)),
     ("proof", toJson ((one.block.getPos?.map (·.byteIdx)).getD 0)),
     ("steps", Json.arr (one.steps.map step))])

def messageJson (message : Message) : IO Json := do
  return Json.mkObj [("line", toJson message.pos.line), ("column", toJson message.pos.column),
    ("text", Json.str (← message.data.toString))]

def errorsIn (messages : MessageLog) : IO (Array Json) := do
  let errors := messages.toList.filter fun message => message.severity matches .error
  return (← errors.mapM messageJson).toArray

/-- Elaborate a file command by command, keeping the state before each theorem. -/
unsafe def openFile (file : String) (folders : List String) :
    IO (Json × Option (Frontend.Context × Array Theorem)) := do
  -- Every import takes the permission back.
  enableInitializersExecution
  let folders := folders.map System.FilePath.mk
  searchPathRef.modify fun known => folders ++ known.filter (!folders.contains ·)
  let input ← IO.FS.readFile file
  let context : Frontend.Context := { inputCtx := Parser.mkInputContext input file }
  let (header, parserState, messages) ← Parser.parseHeader context.inputCtx
  let (env, messages) ← processHeader header {} messages context.inputCtx
  if messages.hasErrors then
    return (Json.mkObj [("header", Json.arr (← errorsIn messages))], none)
  let commandState := Command.mkState env messages {}
  let mut state : Frontend.State := { commandState, parserState, cmdPos := parserState.pos }
  let mut theorems : Array Theorem := #[]
  let mut errors : Array Json := #[]
  let mut done := false
  while !done do
    let scope := state.commandState.scopes.head!
    let reading : Parser.ParserModuleContext := {
      env := state.commandState.env, options := scope.opts
      currNamespace := scope.currNamespace, openDecls := scope.openDecls }
    let (command, parserState, messages) :=
      Parser.parseCommand context.inputCtx reading state.parserState {}
    -- Some versions keep the messages of earlier commands, and others do not.
    let before : Frontend.State := {
      commandState := { state.commandState with messages := {} }
      parserState, cmdPos := state.parserState.pos }
    let (_, after) ← ((Frontend.elabCommandAtFrontend command).run context).run before
    errors := errors ++ (← errorsIn messages) ++ (← errorsIn after.commandState.messages)
    if let some block := (theoremIn? command).bind blockIn? then
      theorems := theorems.push { before, command, block, steps := stepsOf block }
    state := after
    done := Parser.isTerminalCommand command
  let map := context.inputCtx.fileMap
  return (Json.mkObj [("theorems", Json.arr (theorems.map (theoremJson map))),
    ("errors", Json.arr errors)], some (context, theorems))

def say (answer : Json) : IO Unit := do
  let stdout ← IO.getStdout
  stdout.putStrLn s!"vcrt-answer {answer.compress}"
  stdout.flush

def failure (text : String) : Json := Json.mkObj [("failure", Json.str text)]

/-- The answer to one request, and the file that is open after it. -/
unsafe def answered (job : IO.Ref Job) (opened : Option (Frontend.Context × Array Theorem)) (request : Json) :
    IO (Json × Option (Frontend.Context × Array Theorem)) := do
  match request.getObjValAs? String "do", opened with
  | .ok "open", _ =>
    let file := (request.getObjValAs? String "file").toOption.getD ""
    let folders := (request.getObjValAs? (Array String) "path").toOption.getD #[]
    openFile file folders.toList
  | .ok "replay", some (context, theorems) =>
    let number := (request.getObjValAs? Nat "theorem").toOption.getD 0
    match theorems[number]? with
    | some one =>
      match ← (replay context job one request).run with
      | .ok answer => return (answer, opened)
      | .error text => return (failure text, opened)
    | none => return (failure "no such theorem", opened)
  | _, _ => return (failure "no such request, or no file is open", opened)

unsafe def serve (job : IO.Ref Job) : IO Unit := do
  let stdin ← IO.getStdin
  let mut opened : Option (Frontend.Context × Array Theorem) := none
  let mut text ← stdin.getLine
  while !text.isEmpty do
    try
      let (answer, after) ← answered job opened ((Json.parse text).toOption.getD Json.null)
      opened := after
      say answer
    catch e => say (failure (toString e))
    text ← stdin.getLine

end VcrtDriver

unsafe def main : IO Unit := do
  let job ← IO.mkRef ({} : VcrtDriver.Job)
  KeyedDeclsAttribute.addBuiltin Tactic.tacticElabAttribute VcrtDriver.nodeKind
    ``Tactic.evalSkip (VcrtDriver.proof job)
  VcrtDriver.say (Json.mkObj [("version", Json.str Lean.versionString), ("protocol", toJson 1)])
  VcrtDriver.serve job
