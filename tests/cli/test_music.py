"""Songs through the command line: prepare, train, evaluate, generate; and calls that cannot work."""

import gzip
import json
from pathlib import Path

import pytest

from seqloom.batches.store import Store
from seqloom.cli import run
from seqloom.runs.training import pretrain
from seqloom.text.midi import Note, load_midi, write_midi
from seqloom.text.music import EVENTS, events_of, notes_of_frames
from seqloom.tokens.tokenizer import Tokenizer

SMALL = ["model.dim=16", "model.num_layers=1", "budget={steps=3}", "batches.length=32"]
ROWS = {
    "music-transformer-tiny": ["model.num_heads=2", "model.max_distance=8", "batches.budget=128"],
    "lstm-tiny": ["batches.streams=2"],
}


def frames(shift: int) -> list[list[int]]:
    chords = [[72, 67, 60, 48], [71, 67, 62, 43], [72, 64, 60, 45], [74, 65, 57, 50]]
    return [[pitch + shift for pitch in chord] for chord in chords for _ in range(4)]


@pytest.fixture(scope="module")
def songs(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("songs")
    pieces = {"train": [frames(i) for i in range(6)], "valid": [frames(7)], "test": [frames(8), frames(9)]}
    (place / "songs.json.gz").write_bytes(gzip.compress(json.dumps(pieces).encode()))
    for i in range(3):
        (place / f"{i}.mid").write_bytes(write_midi(notes_of_frames(frames(i))))
    return place


def prepared(songs: Path, kind: str, *options: str) -> Path:
    out = songs / "-".join([kind, *options]).replace("--", "")
    if not out.exists():
        files = [songs / "songs.json.gz"] if kind == "grid" else [songs / "0.mid", songs / "1.mid"]
        held_out = [] if kind == "grid" else ["--valid", str(songs / "2.mid")]
        assert run(["prepare", *map(str, files), "--tokenizer", kind, "--out", str(out), *held_out, *options]) == 0
    return out


@pytest.mark.parametrize("kind", ["events", "grid"])
@pytest.mark.parametrize("recipe", ROWS)
def test_from_songs_to_a_song(kind, recipe, songs, tmp_path, capsys):
    data = prepared(songs, kind)
    pretrain(recipe, data, tmp_path / "run", settings=SMALL + ROWS[recipe], device="cpu")
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "run"), "--data", str(data), "--split", "valid", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["nats_per_event"] == found["loss"] and "songs have no bytes" in found["no_bits_per_byte"]
    assert not {"words", "characters", "bytes", "bits_per_byte", "bits_per_word"} & set(found)
    if kind == "grid":
        assert found["frames"] == 16
        assert found["nats_per_frame"] == pytest.approx(found["loss"] * found["tokens"] / 16)
    prompt, new = songs / "2.mid", tmp_path / "new.mid"
    call = ["generate", str(tmp_path / "run"), "--prompt", str(prompt), "--out", str(new), "--max-new", "24"]
    assert run(call) == 0
    said = capsys.readouterr().out
    before, after = load_midi(prompt), load_midi(new)
    assert said.startswith(f"{new}: {len(after)} notes")
    if kind == "events":
        assert events_of(after).startswith(events_of(before)[:-20])
    assert len(after) >= len(before) - 4  # what a chord goes on with is one note with it
    assert run(call) == 2 and "exists already" in capsys.readouterr().err


def test_the_splits_and_the_settings_are_recorded(songs):
    plain, more = Store.open(prepared(songs, "grid")), Store.open(prepared(songs, "grid", "--transpose", "2"))
    assert {name: entry.documents for name, entry in plain.manifest.splits.items()} == {
        "train": 6,
        "valid": 1,
        "test": 2,
    }
    assert {name: entry.documents for name, entry in more.manifest.splits.items()} == {
        "train": 30,
        "valid": 1,
        "test": 2,
    }
    assert more.manifest.options["transpose"] == 2 and "transpose" not in plain.manifest.options
    assert plain.manifest.bits_per_byte.startswith("no: songs")
    assert plain.tokenizer.kind == "grid" and plain.tokenizer.vocab_size == 131
    tokenizer = Store.open(prepared(songs, "events", "--stretch", "0.05")).tokenizer
    assert tokenizer.kind == "events" and tokenizer.vocab_size == 390
    assert tokenizer.encode(" ".join(EVENTS)) == list(range(388)) and tokenizer.decode(range(388)) == " ".join(EVENTS)


def test_the_tokenizer_of_a_folder_reads_songs(songs, tmp_path):
    first = prepared(songs, "events")
    given = ["--from-tokenizer", str(first / "tokenizer.json"), "--transpose", "1"]
    assert run(["prepare", str(songs / "2.mid"), "--out", str(tmp_path / "more"), *given]) == 0
    assert Store.open(tmp_path / "more").split("train").num_documents == 3
    assert Tokenizer.load(tmp_path / "more/tokenizer.json").hash == Store.open(first).tokenizer.hash


BAD = [
    (["0.mid"], 3, "a MIDI file (prepare songs with --tokenizer events)"),
    (["0.mid", "--tokenizer", "grid"], 3, "use --tokenizer events"),
    (["0.mid", "--tokenizer", "events", "--valid", "0.01"], 3, "none of the 1 songs was chosen"),
    (["songs.json.gz", "--tokenizer", "grid", "--valid", "0.1"], 2, "splits of its own"),
    (["songs.json.gz", "--tokenizer", "grid", "--stretch", "0.1"], 2, "no tempo"),
    (["0.mid", "--tokenizer", "events", "--transpose", "13"], 2, "--transpose 13: choose 0 to 12"),
    (["0.mid", "--tokenizer", "events", "--stretch", "nan"], 2, "--stretch nan"),
    (["text.txt", "--tokenizer", "word", "--transpose", "1"], 2, "for songs"),
    (["0.mid", "--tokenizer", "events", "--vocab-size", "500"], 2, "always the same"),
    (["0.mid", "--tokenizer", "events", "--lowercase"], 2, "--lowercase is for text"),
    (["0.mid", "--tokenizer", "events", "--documents", "line"], 2, "--documents is for text"),
    (["text.txt", "--tokenizer", "events"], 3, "neither a MIDI file nor JSON"),
    (["empty.mid", "--tokenizer", "events"], 3, "no usable documents (empty at"),
    (["nothing.mid", "--tokenizer", "events"], 3, "the file is empty"),
    (["four.json", "--tokenizer", "grid"], 3, "frame 1 has 3 pitches"),
    (["high.json", "--tokenizer", "events"], 3, "not a list of MIDI pitches"),
    (["names.json", "--tokenizer", "grid"], 3, "splits"),
    (["held.json", "--tokenizer", "grid"], 3, "no document is for training"),
]


@pytest.mark.parametrize(("call", "code", "said"), BAD, ids=[" ".join(call) for call, *_ in BAD])
def test_calls_that_cannot_work(call, code, said, songs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(songs)
    Path("text.txt").write_text("some words\nmore words\n")
    Path("empty.mid").write_bytes(write_midi([]))
    Path("nothing.mid").write_bytes(b"")
    Path("four.json").write_text('{"train": [[[60, 61, 62]]]}')
    Path("high.json").write_text('{"train": [[[60, 128]]]}')
    Path("held.json").write_text('{"valid": [[[60, 55, 50, 45]]]}')
    Path("names.json").write_text('{"songs": []}')
    assert run(["prepare", *call, "--out", str(tmp_path / "out")]) == code
    err = capsys.readouterr().err
    assert said in err and err.count("seqloom: error: ") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["events", "grid"])
def test_prompts_without_notes(kind, songs, tmp_path, capsys):
    """Nothing to go on from; of a grid neither is what is shorter than half a 16th note."""
    pretrain("lstm-tiny", prepared(songs, kind), tmp_path / "run", settings=SMALL + ROWS["lstm-tiny"], device="cpu")
    (tmp_path / "empty.mid").write_bytes(write_midi([]))
    (tmp_path / "short.mid").write_bytes(write_midi([Note(0.0, 0.05, 60, 64)]))
    for name in ("empty.mid", "short.mid"):
        capsys.readouterr()
        call = ["generate", str(tmp_path / "run"), "--prompt", str(tmp_path / name), "--max-new", "4"]
        accepted = (kind, name) == ("events", "short.mid")
        assert run([*call, "--out", str(tmp_path / f"new-{name}")]) == (0 if accepted else 3)
        assert accepted or f"{name}: the song has no notes" in capsys.readouterr().err
        assert (tmp_path / f"new-{name}").exists() == accepted


def test_a_run_on_text_neither_reads_nor_writes_songs(songs, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("some words of text\n" * 30)
    assert (
        run(
            [
                "prepare",
                str(tmp_path / "a.txt"),
                "--out",
                str(tmp_path / "data"),
                "--tokenizer",
                "char",
                "--keep-duplicates",
            ]
        )
        == 0
    )
    pretrain("lstm-tiny", tmp_path / "data", tmp_path / "run", settings=SMALL + ROWS["lstm-tiny"], device="cpu")
    for options in (["--prompt", str(songs / "0.mid")], ["--out", str(tmp_path / "new.mid")]):
        capsys.readouterr()
        assert run(["generate", str(tmp_path / "run"), *options]) == 2
        assert "was trained on text (char)" in capsys.readouterr().err
    assert run(["generate", str(tmp_path / "run"), "--out", "new.txt"]) == 2
    assert run(["generate", str(tmp_path / "run"), "--out", str(tmp_path / "x.mid"), "--n", "2"]) == 2


def write_plan(path: Path, text: str, more: str = "", other: str = "") -> Path:
    path.write_text(f"""
name = "songs"
{more}
settings = ["model.dim=16", "model.num_layers=1", "batches.length=16"]
[text]
{text}
[budget]
tokens = 256
[[rows]]
name = "LSTM"
recipe = "lstm-tiny"
settings = ["batches.streams=2"]
[[rows]]
name = "distances"
recipe = "music-transformer-tiny"
settings = ["model.num_heads=2", "model.max_distance=8", "model.max_len=16", "batches.budget=128"]
{other}
""")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("source", ["files", pytest.param("prepared", marks=pytest.mark.long)])
def test_songs_in_a_plan(source, songs, tmp_path, capsys):
    """Rows are ranked by nats per event, at their own context and at a common one; songs are the items."""
    text = f'files = ["{songs / "songs.json.gz"}"]\ntokenizer = "grid"'
    text = text if source == "files" else f'prepared = "{prepared(songs, "grid")}"'
    plan, out = write_plan(tmp_path / "plan.toml", text, "seeds = 2"), tmp_path / "out"
    assert run(["compare", str(plan), "--out", str(out), "--quiet"]) == 0
    table = json.loads((out / "comparison.json").read_text())
    own, common = table["metrics"]
    assert (own["name"], common["name"]) == ("nats per event", "nats per event at 16 tokens of context")
    assert "2 documents" in own["method"] and table["samples"] == {"LSTM": "", "distances": ""}
    assert any(line.startswith("nats per event are at each row's own context") for line in table["caveats"])
    data = prepared(songs, "grid")
    capsys.readouterr()
    for row, length in (("LSTM", []), ("distances", ["--max-len", "16"])):
        folder = next((out / "runs").glob(f"{row}*")) / "seed-1"
        assert run(["evaluate", str(folder), "--data", str(data), "--split", "test", "--json", *length]) == 0
        found = json.loads(capsys.readouterr().out)["nats_per_event"]
        assert own["rows"][row]["values"][1] == pytest.approx(found, rel=1e-6)
    # what is packed follows from its items, and a row can be trained again
    assert run(["compare", str(plan), "--out", str(out), "--pack", str(tmp_path / "all.zip"), "--with-text"]) == 0
    more = ["--data", str(data)] if source == "prepared" else []
    assert run(["verify", str(tmp_path / "all.zip"), "--row", "LSTM", "--seed", "0", *more]) == 0
    assert "nats per event" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "more", "other", "code", "message"),
    [
        ('files = ["SONGS"]\ntokenizer = "grid"', "pairs = 5", "", 3, "asks about sentences"),
        ('prepared = "DATA"', "pairs = 5", "", 3, "asks about sentences"),
        (
            'files = ["SONGS"]\ntokenizer = "grid"', "", '[[rows]]\nname = "X"\nrecipe = "gru-tiny"\ntokenizer = "events"',
            2, "events must be the same for all rows",
        ),
        ('files = ["a.txt"]\ntokenizer = "events"', "", "", 3, "neither a MIDI file nor JSON"),
    ],
)  # fmt: skip
def test_plans_that_do_not_fit_songs(text, more, other, code, message, songs, tmp_path, capsys):
    """Said before anything is trained."""
    (tmp_path / "a.txt").write_text("some words\n")
    text = text.replace("DATA", str(prepared(songs, "grid"))).replace("SONGS", str(songs / "songs.json.gz"))
    plan = write_plan(tmp_path / "plan.toml", text, more, other)
    assert run(["compare", str(plan), "--out", str(tmp_path / "out")]) == code
    error = capsys.readouterr().err
    assert message in error and error.count("seqloom: error:") == 1
