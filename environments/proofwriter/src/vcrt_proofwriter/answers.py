"""Answer every question of ProofWriter files, and compare with the gold answers and with clingo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcrt.errors import MalformedInputError, VcrtError
from vcrt_proofwriter.clingo_engine import clingo_answers
from vcrt_proofwriter.engine import Facts, holding, truth
from vcrt_proofwriter.files import LabelledTheory, read_theories


@dataclass(kw_only=True, slots=True)
class Answers:
    """The numbers of a file's theories and questions, and of correct results."""

    file: Path
    num_theories: int = 0
    num_questions: int = 0
    #: Questions to which vcrt's engine, and clingo, give the gold answer.
    num_right: int = 0
    num_right_by_clingo: int = 0
    #: Theories in which both find the same facts.
    num_equal: int = 0

    @property
    def num_differing(self) -> int:
        """The number of answers and models that differ from the gold answer or from each other."""
        answers = 2 * self.num_questions - self.num_right - self.num_right_by_clingo
        return answers + self.num_theories - self.num_equal


def theories(files: Sequence[str | Path]) -> list[Answers]:
    """Read ProofWriter files, answer every question, and compare the answers with the gold ones and with clingo's.

    Example: vcrt theories meta-test.jsonl

    Args:
        files: JSON lines, each an official structured row or an English theory with its questions.

    Raises:
        MalformedInputError: A line cannot be read; it is named.
    """
    if not files:
        raise VcrtError("which files?", expected="at least one", remedy="vcrt theories FILE...")
    return [_answers(Path(file)) for file in files]


def _answers(file: Path) -> Answers:
    found = Answers(file=file)
    for item in read_theories(file):
        try:
            ours = holding(item.theory)
        except MalformedInputError as error:
            raise error.within(item.where) from error
        theirs = clingo_answers(item.theory).model
        found.num_theories += 1
        found.num_equal += ours == theirs
        found.num_questions += len(item.questions)
        found.num_right += _num_as_labelled(item, ours)
        found.num_right_by_clingo += _num_as_labelled(item, theirs)
    return found


def _num_as_labelled(item: LabelledTheory, facts: Facts) -> int:
    """Return how many of a theory's questions have their gold answer given these facts."""
    return sum(
        truth(question.atom, facts, item.theory.assumption) == question.answer
        for question in item.questions
    )
