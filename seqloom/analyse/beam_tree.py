"""The tree of a beam search: every hypothesis that was kept, its numbers, and what each might have gone on with."""

from collections.abc import Sequence
from typing import Any

from seqloom.analyse.finding import Finding
from seqloom.analyse.read import name_token
from seqloom.charts import Section, TableCell, escaped, figure, table
from seqloom.charts.tree import Node, tree
from seqloom.decode.search import Hypothesis
from seqloom.decode.trace import Considered
from seqloom.tokens.tokenizer import Tokenizer


class BeamTree(Finding):
    """How a beam search went."""

    title = "Beam search"

    def __init__(
        self,
        run: str,
        prompt: str,
        beam: int,
        considered: Sequence[Considered],
        found: Sequence[Hypothesis],
        tokenizer: Tokenizer,
    ):
        self.run, self.prompt, self.beam = run, prompt, beam
        self.considered, self.found, self.tokenizer = list(considered), list(found), tokenizer

    def __repr__(self) -> str:
        return f"<BeamTree of {self.run}: {len(self.considered)} beginnings, {self.lines()[0]}>"

    def name(self, token: int) -> str:
        return name_token(self.tokenizer, token)

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens)

    def lines(self) -> list[str]:
        return [f"{each.score:.4f}  {self.text(each.tokens)}" for each in self.found]

    def pictures(self) -> dict[str, str]:
        best = tuple(self.found[0].tokens) if self.found else ()
        ends = {tuple(each.tokens): each for each in self.found}
        sums = {each.tokens: each for each in self.considered}
        for result in self.found:  # the last step of a search keeps no beginnings
            for i in range(len(result.tokens) + 1):
                path = tuple(result.tokens[:i])
                sums.setdefault(path, Considered(path, result.log_prob, ()))
        nodes = {}
        for tokens, each in sums.items():
            others = ", ".join(f"{self.name(token)} {value:.2f}" for token, value in each.alternatives)
            end = ends.get(tokens)
            number = f"{each.log_prob:.2f}" + (f", score {end.score:.2f}" if end is not None else "")
            nodes[tokens] = Node(
                self.name(tokens[-1]) if tokens else self.prompt or "⟨start⟩", number,
                f"next: {others}" if others else "", best[: len(tokens)] == tokens, end is not None,
            )  # fmt: skip
        return {"tree": tree(nodes, "tree of a beam search")}

    def parts(self) -> list[str | Section]:
        header = ("hypothesis", "next", "log p", "log p with it")
        steps: list[list[TableCell]] = [
            [
                f"{len(each.tokens)}: {self.text(each.tokens) or '⟨start⟩'}", self.name(token), f"{value:.4f}",
                f"{each.log_prob + value:.4f}",
            ]
            for each in self.considered
            for token, value in each.alternatives
        ]  # fmt: skip
        results: list[list[TableCell]] = [
            [self.text(each.tokens), f"{each.log_prob:.4f}", f"{each.score:.4f}", "yes" if each.finished else "no"]
            for each in self.found
        ]
        return [
            f'<p class="note">How {escaped(self.run)} searched with a beam of {self.beam}. A number is the log-probability of '
            "all tokens so far; ■ ends a result, whose score is what results are ranked by; the way to the best one is blue. A "
            "pointer that rests on a token shows what else could follow it. Branches that end without ■ were given up.</p>"
            f"<pre>{escaped(self.prompt)}</pre>",
            Section("Tree", figure(self.pictures()["tree"], "tree")),
            Section("Results", table(("text", "log p", "score", "finished"), results, file="results.csv")),
            Section("Alternatives at every step", table(header, steps, file="alternatives.csv")),
        ]

    def rows(self) -> list[list[Any]]:
        return [
            ["step", "hypothesis", "log_prob", "next", "next_log_prob"],
            *(
                [len(each.tokens), self.text(each.tokens), each.log_prob, self.name(token), value]
                for each in self.considered
                for token, value in each.alternatives
            ),
        ]

    def record(self) -> dict[str, Any]:
        return {
            "run": self.run, "prompt": self.prompt, "beam": self.beam,
            "considered": [
                {
                    "tokens": list(each.tokens), "text": self.text(each.tokens), "log_prob": each.log_prob,
                    "next": [{"token": self.name(token), "log_prob": value} for token, value in each.alternatives],
                }
                for each in self.considered
            ],
            "found": [
                {
                    "tokens": list(each.tokens), "text": self.text(each.tokens), "log_prob": each.log_prob,
                    "score": each.score, "finished": each.finished,
                }
                for each in self.found
            ],
        }  # fmt: skip
