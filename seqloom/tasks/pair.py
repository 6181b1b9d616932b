"""What two texts are to each other: entailment, paraphrase. Both are one sequence, and classified as such."""

from seqloom.tasks.classify import Classify


class Pair(Classify):
    files = "pair"
