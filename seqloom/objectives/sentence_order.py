"""Masked tokens, and whether the two parts of a passage have changed places. Lan et al., 2020 (arXiv 1909.11942).

The same head as next sentence prediction; what differs are the passages: both parts are of one document, so that the topic
does not give the order away.
"""

from seqloom.objectives.next_sentence import NextSentence


class SentenceOrder(NextSentence):
    form = "order"
