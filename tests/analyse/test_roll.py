"""Piano rolls: where tokens stand, what arcs show, and every form of the page."""

import json
import re

import numpy as np
import pytest

from seqloom.analyse import roll
from seqloom.analyse.roll import spots_of
from seqloom.batches.prepare import prepare
from seqloom.charts.roll import Arc, Bar, piano_roll, pitch_name
from seqloom.cli import run
from seqloom.errors import UsageError
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.text.midi import write_midi
from seqloom.text.music import FRAME, notes_of_frames
from tests.cli.test_music import ROWS, SMALL, frames


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("roll")
    (place / "songs.json").write_text(json.dumps({"train": [frames(i) for i in range(6)]}))
    (place / "song.mid").write_bytes(write_midi(notes_of_frames(frames(0))))
    prepare([place / "songs.json"], place / "data", tokenizer="grid", workers=1)
    for recipe, settings in ROWS.items():
        pretrain(recipe, place / "data", place / recipe, settings=SMALL + settings, device="cpu")
    return place


def test_where_tokens_stand():
    assert spots_of("events", "vel3 on60 shift50 off60 shift100") == [
        (0.0, None), (0.0, 60), (0.5, None), (0.5, 60), (1.5, None),
    ]  # fmt: skip
    assert spots_of("grid", "p72 rest p60 p48 p71") == [(0.0, 72), (0.0, None), (0.0, 60), (0.0, 48), (FRAME, 71)]


def weights_are_the_models(place) -> None:
    """Arcs are the attention of the run that `attention` shows, without the token before the song."""
    loaded = load(place / "music-transformer-tiny", "cpu")
    found = loaded.roll(place / "song.mid", token="40", layer=1)
    assert found.arcs.chosen.token == 39 and found.arcs.weights.shape == (2, 64)
    whole = loaded.attention(found.text).weights()[0]
    skip = whole.shape[-1] - 64
    assert np.array_equal(found.arcs.weights, whole[:, skip + 39, skip:])
    assert not found.arcs.weights[:, 40:].any()


def test_arcs_are_the_attention(place):
    weights_are_the_models(place)


def test_arcs_of_another_token_are_noticed(place, monkeypatch):
    choose = roll.choose
    monkeypatch.setattr(roll, "choose", lambda *given: choose(*given)._replace(token=38))
    with pytest.raises(AssertionError):
        weights_are_the_models(place)


@pytest.mark.parametrize("recipe", ROWS)
def test_every_form(place, recipe, tmp_path, capsys):
    for ending in ("html", "svg", "csv", "json"):
        out = tmp_path / f"roll.{ending}"
        call = ["inspect", str(place / recipe), "--text", str(place / "song.mid"), "--show", "roll", "--out", str(out)]
        assert run([*call, "--device", "cpu"]) == 0
    assert "15 notes" in capsys.readouterr().out
    assert (tmp_path / "roll.svg").read_text().count("<rect") >= 15
    has_arcs = "arcs" in json.loads((tmp_path / "roll.json").read_text())
    assert has_arcs == (recipe != "lstm-tiny")
    assert ("no attention" in (tmp_path / "roll.html").read_text()) != has_arcs


def test_notes_stand_at_their_pitch_and_time():
    drawn = piano_roll(
        [Bar(0.0, 1.0, 60), Bar(1.0, 2.0, 72)], [Arc((0.0, 60), (1.0, None), 0.5, 0)], "two notes", ["head 1"]
    )
    bars = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="6.0"', drawn)
    (x, y, wide), (later, higher, _) = (tuple(map(float, bar)) for bar in bars)
    assert later - x == pytest.approx(wide + 0.6, abs=0.11) and y - higher == pytest.approx(12 * 7)
    assert drawn.count('fill="none"') == 1 and pitch_name(60) == "C4" and pitch_name(61) == "C♯4"
    assert "<svg" in piano_roll([], [], "nothing")


def test_calls_that_cannot_work(place, tmp_path, capsys):
    run_folder = str(place / "music-transformer-tiny")
    call = ["inspect", run_folder, "--show", "roll", "--out", str(tmp_path / "x.svg"), "--text"]
    (place / "empty.mid").write_bytes(write_midi([]))
    for text, code, said in (
        (str(place / "empty.mid"), 3, "no notes"),
        ("", 3, "--text: it is empty"),
        ("on60", 3, "not a word of music"),
        (str(place / "none.mid"), 5, "no such file"),
    ):
        assert run([*call, text]) == code
        assert said in capsys.readouterr().err
    with pytest.raises(UsageError, match="there is 1 layer with attention: choose 1"):
        load(place / "music-transformer-tiny", "cpu").roll(place / "song.mid", layer=2)
    with pytest.raises(UsageError, match="--head 1: this model has no attention"):
        load(place / "lstm-tiny", "cpu").roll(place / "song.mid", head=1)


def test_a_part_of_a_long_song_is_said_to_be_one(place, capsys, tmp_path):
    run_folder, song = str(place / "music-transformer-tiny"), " ".join(["p60 p55 p50 p45"] * 40)
    found = load(run_folder, "cpu").roll(song)
    assert found.song.startswith("the first ") and found.song.endswith(" of 160 tokens of the song")
    assert found.song in found.lines()[0] and found.song in found.html()
    assert load(run_folder, "cpu").roll("p60 p55 p50 p45").song == "the song"
