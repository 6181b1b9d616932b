"""Classification of two texts: entailment, paraphrase. Both are read as one sequence."""

from seqloom.tasks.classify import Classify


class Pair(Classify):
    """Predicts the class of a pair of texts."""

    files = "pair"
    about_pictures = False
    fields = ("text", "text2")
