"""Beam search, over the step interface alone: language models, encoder–decoders and ensembles go through it alike.

All bookkeeping is tensors of fixed shape, and a step is a pure function of them: on a GPU the model, the choice of
candidates and the moving of states are recorded as one CUDA graph. The host only checks whether sources are done.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.batch import Context, State, select, widen
from seqloom.decode.graph import Recorded
from seqloom.decode.rules import NEVER, NOTHING, BeamConfig, limit_repetition
from seqloom.decode.sample import SeenTokens
from seqloom.decode.step import Steps
from seqloom.errors import UsageError


class Hypothesis(NamedTuple):
    tokens: list[int]  # after the prompt, without the end token
    log_prob: float  # of those and of the end token; under a repetition penalty, what that makes of it
    score: float  # after all penalties: what hypotheses are ranked by
    finished: bool  # False: it was cut off at the greatest length
    alignment: Tensor | None = None  # (tokens, source positions) the attention with which each was chosen


class Finished(NamedTuple):
    """The best that each group of each source has finished, in falling order; score −inf: none yet."""

    scores: Tensor  # (N, G, B)
    sums: Tensor  # (N, G, B)
    seen: Tensor  # (N, G, B, W)
    attentions: Any  # (N, G, B, L, S)


class Beams(NamedTuple):
    """A search under way, for N sources in G groups of B hypotheses: dim 0 of every tensor is the source.

    Groups are searches of their own, but each sees what those before it choose. One group is plain beam search.
    """

    seen: Tensor  # (N, G, B, W) the prompt and what follows it, NOTHING behind
    sums: Tensor  # (N, G, B) of log-probabilities; −inf: no hypothesis
    attentions: Any  # (N, G, B, L, S) the attention of each new token; () if it is not kept
    parents: Tensor  # (N, G, B) which of its source's K = G · B hypotheses each one continues
    prompt: Tensor  # (N,) tokens of the prompt
    made: Tensor  # (N,) tokens behind it
    room: Tensor  # (N,) how many there can be
    sizes: Tensor  # (N,) places of the source
    done: Tensor  # (N, G)
    finished: Finished


def beam_search(
    stepper: Steps,
    prompts: list[list[int]],
    config: BeamConfig,
    end_id: int,
    banned: list[int],
    context: Any = None,
    rooms: list[int] | None = None,
) -> list[list[Hypothesis]]:
    """The n best for every prompt, best first. An encoder–decoder has a context of one source for each prompt, which is
    the start token, or that and a beginning that the target must have; `banned` are never chosen.

    A hypothesis has at most max_new tokens, where given at most its source's `rooms`, and no more than the model can
    read. What is found for a source does not depend on the others. Equal candidates are taken by the lower id.
    """
    return Search(stepper, config, end_id, banned).run(prompts, context, rooms)


CHECK_EVERY = 8  # steps on a GPU until the host waits to see which sources are done
FIRST_ROOM = {True: 64, False: 32}  # new tokens that caches begin with; on a GPU more room means a new graph
KEPT_GRAPHS = 4


class Search:
    """Beam search with one model and one config. Kept for many calls, it records its steps on a GPU only once a shape."""

    def __init__(self, stepper: Steps, config: BeamConfig, end_id: int, banned: list[int]):
        self.stepper, self.config, self.end_id = stepper, config, end_id
        self.banned = torch.tensor(banned, dtype=torch.long, device=stepper.device)
        self.recorded: list[Recorded] = []

    @torch.inference_mode()
    def run(
        self, prompts: list[list[int]], context: Any = None, rooms: list[int] | None = None
    ) -> list[list[Hypothesis]]:
        """As beam_search."""
        if not prompts:
            return []
        stepper, limit = self.stepper, self.stepper.limit
        longest, most = max(map(len, prompts)), self.rooms(prompts, rooms)
        capacity = self.limit_capacity(longest + FIRST_ROOM[stepper.graphed])
        beams, state = self.start(prompts, context, most, capacity)
        found: list[list[Hypothesis]] = [[] for _ in prompts]
        there = list(range(len(prompts)))  # the source in each row
        for made in range(1, max(most)):
            if not stepper.graphed or made % CHECK_EVERY == 0:
                done = beams.done.all(1).tolist()
                going = [row for row, over in enumerate(done) if not over]
                if not going:
                    break
                if len(going) < stepper.worth_keeping * len(there):  # finished sources leave the batch
                    self.read(beams, [row for row, over in enumerate(done) if over], there, found)
                    beams, state = keep_sources(beams, state, torch.tensor(going, device=stepper.device))
                    there = [there[row] for row in going]
            if longest + made > capacity and capacity != limit:
                capacity = self.limit_capacity(2 * capacity)
                state = state._replace(own=widen(state.own, capacity))
            beams, state = self.recorded_step(beams, state) if stepper.graphed else self.step(beams, state)
        self.read(beams, list(range(len(there))), there, found)
        return found

    def limit_capacity(self, capacity: int) -> int:
        return capacity if self.stepper.limit is None else min(capacity, self.stepper.limit)

    def rooms(self, prompts: list[list[int]], rooms: list[int] | None) -> list[int]:
        """How many new tokens each may have."""
        limit, longest = self.stepper.limit, max(map(len, prompts))
        if limit is not None and longest > limit:
            raise UsageError(f"a prompt has {longest} tokens, but the model reads at most {limit}: shorten it")
        most = [self.config.max_new] * len(prompts)
        if rooms is not None:
            most = [max(1, min(room, given)) for room, given in zip(most, rooms, strict=True)]
        if limit is not None:  # the last token need not be read
            most = [min(room, limit + 1 - len(prompt)) for room, prompt in zip(most, prompts, strict=True)]
        return most

    def recorded_step(self, beams: Beams, state: State) -> tuple[Beams, State]:
        carried = (beams, state)
        graph = next((graph for graph in self.recorded if graph.takes((), carried)), None)
        if graph is None:
            graph = Recorded(lambda _, carried: ((), self.step(*carried)), (), carried)
            self.recorded = [*self.recorded[1 - KEPT_GRAPHS :], graph]
        return graph((), carried)[1]

    def start(self, prompts: list[list[int]], context: Any, most: list[int], capacity: int) -> tuple[Beams, State]:
        """The prompts read, and the first tokens chosen."""
        config, device = self.config, self.stepper.device
        first = self.stepper.start(prompts, capacity, context)
        length = -(-max(most) // 16) * 16  # few shapes, few graphs
        aligned = isinstance(first.attention, Tensor)
        if config.coverage_penalty and not aligned:
            raise UsageError(
                f"a coverage penalty of {config.coverage_penalty} needs attention to the source, which this model does not "
                f"have: set it to 0"
            )
        n, groups, each = len(prompts), config.groups, config.beam // config.groups
        tokens = SeenTokens(prompts, length, device)
        seen = tokens.ids[:, None, None].expand(-1, groups, each, -1)
        sums = torch.full((n, groups, each), NEVER, device=device)
        attentions = first.attention.new_zeros(n, groups, each, length, first.attention.shape[1]) if aligned else ()
        beams = Beams(
            seen=seen,
            sums=sums.index_fill(2, torch.zeros(1, dtype=torch.long, device=device), 0.0),  # one for each group
            attentions=attentions,
            parents=torch.zeros_like(sums, dtype=torch.long),
            prompt=tokens.lengths,
            made=torch.zeros_like(tokens.lengths),
            room=torch.tensor(most, device=device),
            sizes=sizes(context) if aligned else torch.zeros_like(tokens.lengths),
            done=torch.zeros(n, groups, dtype=torch.bool, device=device),
            finished=Finished(sums, sums, seen, attentions),
        )
        rows = self.for_each(torch.arange(n, device=device))
        beams = self.choose(beams, first.scores[rows], first.attention[rows] if aligned else ())
        return beams, first.state._replace(own=select(first.state.own, rows))

    def step(self, beams: Beams, state: State) -> tuple[Beams, State]:
        """What was chosen is read, and the next tokens are chosen."""
        rows = (beams.parents.flatten(1) + self.config.beam * row_numbers(beams.parents)).flatten()
        if self.moves(rows):
            state = state._replace(own=select(state.own, rows))
        last = beams.prompt + beams.made - 1  # where the token that was chosen stands
        tokens = beams.seen.gather(3, expand_positions(last, beams.seen)).flatten()
        limit = self.stepper.limit
        places = last if limit is None else last.clamp(max=limit - 1)  # sources that are done may still go on
        after = self.stepper.plain(tokens, self.for_each(places), state)
        return self.choose(beams, after.scores, after.attention), after.state

    def for_each(self, sources: Tensor) -> Tensor:
        """(N,) → (N·K,)"""
        return sources[:, None].expand(-1, self.config.beam).flatten()

    def moves(self, rows: Tensor) -> bool:
        """Whether any hypothesis continues another row than its own; checked on a CPU only."""
        if self.config.beam == 1:
            return False
        return rows.is_cuda or not torch.equal(rows, torch.arange(rows.shape[0], device=rows.device))

    def choose(self, beams: Beams, scores: Tensor, attention: Any) -> Beams:
        """One more token for every hypothesis: (N·K, V) scores, and (N·K, S) their attention to the source.

        Of each group the 2B best candidates are taken, of which at most B end: those of the first B that end are finished,
        and the first B that do not end go on."""
        n, groups, each, _ = beams.seen.shape
        log_probs = self.allowed(beams, scores).view(n, groups, each, -1)
        vocab = log_probs.shape[3]
        made = beams.made + 1
        at_end = (made >= beams.room)[:, None]
        said = log_probs.new_zeros(n, vocab)  # how often earlier groups take each token
        chosen = []
        for g in range(groups):
            reached = (beams.sums[:, g, :, None] + log_probs[:, g]).flatten(1)
            liked = reached
            if g and self.config.diversity:
                liked = (reached.view(n, each, vocab) - self.config.diversity * said[:, None]).flatten(1)
            index = best(liked, 2 * each)
            value, token = reached.gather(1, index), index % vocab
            ends = token == self.end_id
            running = ends.int().sort(dim=1, stable=True).indices[:, :each]
            chosen.append((value, token, index // vocab, ends | at_end, running))
            if g + 1 < groups:
                counts = (value.gather(1, running) > NEVER) & ~beams.done[:, g, None]
                said = said.scatter_add(1, token.gather(1, running), counts.float())
        value, token, parent, ends, running = (torch.stack(part, 1) for part in zip(*chosen, strict=True))

        attentions = beams.attentions
        if isinstance(attentions, Tensor):  # what led to this token is the same for all of its candidates
            row = attention.view(n, groups, each, 1, -1)
            place = beams.made[:, None, None, None, None].expand(-1, groups, each, 1, row.shape[-1])
            attentions = attentions.scatter(3, place, row)
        place = expand_positions(beams.prompt + beams.made, beams.seen)

        def candidates(which: Tensor) -> tuple[Tensor, Tensor, Any]:
            """(N, G, B) of the candidates: their sums, texts and attentions."""
            source = parent.gather(2, which)
            text = gather_along(beams.seen, source).scatter(3, place, token.gather(2, which)[..., None])
            return value.gather(2, which), text, gather_along(attentions, source)

        first = torch.arange(each, device=value.device).expand(n, groups, each)
        over = ends[..., :each] & (value[..., :each] > NEVER) & ~beams.done[..., None]
        finished = self.merge_finished(beams.finished, candidates(first), over, made, beams.sizes)
        sums, seen, attentions = candidates(running)
        group = torch.arange(groups, device=value.device)[:, None] * each
        return beams._replace(
            seen=seen,
            sums=sums,
            attentions=attentions,
            parents=parent.gather(2, running) + group,
            made=made,
            done=beams.done | at_end | self.is_settled(sums, finished.scores, beams.room),
            finished=finished,
        )

    def allowed(self, beams: Beams, scores: Tensor) -> Tensor:
        """(N·K, V) log-probabilities, −inf for what a rule forbids."""
        config = self.config
        log_probs = scores.log_softmax(1)
        if config.repetition_penalty > 1 or config.no_repeat:
            lengths = self.for_each(beams.prompt + beams.made)
            log_probs = limit_repetition(log_probs, beams.seen.reshape(len(lengths), -1), lengths, config, self.end_id)
        log_probs.index_fill_(1, self.banned, NEVER)
        if config.min_new:
            early = self.for_each(beams.made < config.min_new)
            log_probs[:, self.end_id] = log_probs[:, self.end_id].masked_fill(early, NEVER)
        return log_probs

    def merge_finished(
        self, before: Finished, new: tuple[Tensor, Tensor, Any], over: Tensor, made: Tensor, sizes: Tensor
    ) -> Finished:
        """The best of those that were finished and of those that are now."""
        sums, seen, attentions = new
        scores = sums / self.length(made)[:, None, None]
        if self.config.coverage_penalty:
            covered = attentions.sum(3).clamp(1e-9, 1.0).log()  # (N, G, B, S)
            behind = torch.arange(covered.shape[3], device=sums.device) >= sizes[:, None]
            scores = scores + self.config.coverage_penalty * covered.masked_fill(behind[:, None, None], 0.0).sum(3)
        scores = torch.cat((before.scores, scores.masked_fill(~over, NEVER)), 2)
        order = scores.sort(dim=2, descending=True, stable=True).indices[..., : sums.shape[2]]

        def kept(old: Any, more: Any) -> Any:
            return gather_along(torch.cat((old, more), 2), order) if isinstance(old, Tensor) else ()

        return Finished(
            scores.gather(2, order),
            kept(before.sums, sums),
            kept(before.seen, seen),
            kept(before.attentions, attentions),
        )

    def is_settled(self, sums: Tensor, finished: Tensor, room: Tensor) -> Tensor:
        """(N, G) where nothing better can come. A sum only falls, its divisor is greatest at the greatest length, and a
        coverage penalty is never positive: that bounds what a running hypothesis can reach."""
        highest, worst = sums.amax(2), finished[..., -1]
        if self.config.stop == "first":
            return (worst > NEVER) | (highest == NEVER)
        return highest / self.length(room)[:, None] <= worst

    def length(self, made: Tensor) -> Tensor:
        """(N,) the divisor of sums of this many tokens."""
        size = (5.0 + made) / 6.0 if self.config.length_form == "gnmt" else made.float()
        return size**self.config.length_penalty

    def read(self, beams: Beams, rows: list[int], there: list[int], found: list[list[Hypothesis]]) -> None:
        """Writes what the rows have finished to their sources' places."""
        index = torch.tensor(rows, dtype=torch.long, device=beams.made.device)
        done, prompt, sizes = select((beams.finished, beams.prompt, beams.sizes), index)
        scores, order = done.scores.flatten(1).sort(dim=1, descending=True, stable=True)
        best_ones = order[:, : self.config.n_best]
        sums, seen, attentions = (
            gather_along(flatten_groups(part), best_ones) for part in (done.sums, done.seen, done.attentions)
        )
        attentions = attentions.cpu() if isinstance(attentions, Tensor) else ()
        parts = (part.tolist() for part in (scores, sums, seen, prompt, sizes))
        for i, (row, score, total, texts, before, size) in enumerate(zip(rows, *parts, strict=True)):
            for rank, text in enumerate(texts):
                if score[rank] == NEVER:
                    break
                tokens = [token for token in text[before:] if token != NOTHING]
                ended = tokens[-1] == self.end_id
                tokens = tokens[:-1] if ended else tokens
                alignment = (
                    attentions[i, rank, : len(tokens), :size].clone() if isinstance(attentions, Tensor) else None
                )
                found[there[row]].append(Hypothesis(tokens, total[rank], score[rank], ended, alignment))


CHUNK = 32


def best(scores: Tensor, k: int) -> Tensor:
    """(n, k) where the k highest of (n, M) scores stand, in falling order; of equal ones the first.

    No place outside of the k pieces with the highest tops can be among them: nearly all is attention at only once.
    """
    m = scores.shape[1]
    if m <= 2 * k * CHUNK:
        return scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    whole = m - m % CHUNK
    tops = scores[:, :whole].unflatten(1, (-1, CHUNK)).amax(2)
    if whole < m:
        tops = torch.cat((tops, scores[:, whole:].amax(1, keepdim=True)), 1)
    pieces = best(tops, k).sort(dim=1).values
    places = (pieces[..., None] * CHUNK + torch.arange(CHUNK, device=scores.device)).flatten(1)
    found = scores.gather(1, places.clamp(max=m - 1)).masked_fill(places >= m, NEVER)
    return places.gather(1, found.sort(dim=1, descending=True, stable=True).indices[:, :k])


def row_numbers(rows: Tensor) -> Tensor:
    """(N, 1) the numbers of the rows."""
    return torch.arange(rows.shape[0], device=rows.device)[:, None]


def expand_positions(each: Tensor, over: Tensor) -> Tensor:
    """(N,) → (N, G, B, 1), one place for every hypothesis of (N, G, B, …)."""
    return each[:, None, None, None].expand(-1, *over.shape[1:3], 1)


def gather_along(tree: Any, index: Tensor) -> Any:
    """Picks from the last dimension that a tensor and the index (…, B) share; () stays ()."""
    if not isinstance(tree, Tensor):
        return tree
    extra = tree.shape[index.ndim :]
    return tree.gather(index.ndim - 1, index.view(*index.shape, *[1] * len(extra)).expand(*index.shape, *extra))


def flatten_groups(tree: Any) -> Any:
    """(N, G, B, …) → (N, G · B, …)"""
    return tree.flatten(1, 2) if isinstance(tree, Tensor) else tree


def sizes(context: Any) -> Tensor:
    """(N,) places of each source; the members of an ensemble have read the same ones."""
    one = context if isinstance(context, Context) else context[0]
    return one.offsets.diff().long()


def keep_sources(beams: Beams, state: State, index: Tensor) -> tuple[Beams, State]:
    """Keep only these sources."""
    beam = beams.sums[0].numel()
    rows = (index[:, None] * beam + torch.arange(beam, device=index.device)).flatten()
    return select(beams, index), State(select(state.own, rows), select(state.shared, index))
