"""scenes and caption: pictures made by a rule, and texts about pictures."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from seqloom.cli import app
from seqloom.cli.options import Device, Json, require
from seqloom.progress import in_one_line

SCENES_EXAMPLES = """Examples:

seqloom scenes --out data/scenes

seqloom scenes --out data/few --train 500 --valid 100 --test 100 --composed 100 --seed 1
"""
CAPTION_EXAMPLES = """Examples:

seqloom caption runs/scenes photo.png

seqloom caption runs/scenes a.png b.jpg --beam 1 --json

seqloom caption runs/scenes a.png b.jpg --maps maps.html
"""

_Count = Annotated[int, typer.Option(min=0, max=1_000_000, help="Number of scenes in this split.")]


@app.command(epilog=SCENES_EXAMPLES)
def scenes(
    out: Annotated[Path, typer.Option(help="Folder to write.", show_default=False)],
    train: _Count = 3000,
    valid: _Count = 300,
    test: _Count = 500,
    composed: Annotated[
        int,
        typer.Option(min=0, max=1_000_000, help="Number of scenes with combinations that no other split has."),
    ] = 300,
    grid: Annotated[int, typer.Option(help="Cells of a side of a scene: 4 or 8.")] = 4,
    questions: Annotated[int, typer.Option(min=0, max=6, help="The most questions about a scene.")] = 3,
    things: Annotated[int, typer.Option(min=1, max=4, help="The most things in a scene.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the scenes.")] = 0,
) -> None:
    """Write pictures of coloured shapes with captions, questions and masks of what is on them."""
    from seqloom.errors import UsageError
    from seqloom.text.scenes import write_scenes

    if grid not in (4, 8):
        raise UsageError(f"--grid {grid}: choose 4 or 8")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} exists already: choose another name")
    wanted = {"train": train, "valid": valid, "test": test, "composed": composed}
    counts = {name: count for name, count in wanted.items() if count}
    if not counts:
        raise UsageError("no scenes: give at least one of --train, --valid, --test and --composed")
    for name, found in write_scenes(out, counts, seed, grid, questions, things).items():
        print(
            f"{out / name}.jsonl: {found['scenes']:,} scenes, {found['captions']:,} captions, {found['questions']:,} questions"
        )


@app.command(epilog=CAPTION_EXAMPLES)
def caption(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    images: Annotated[
        list[Path], typer.Argument(help="Pictures: .png, .jpg or .ppm; or .npz with features of regions.")
    ],
    beam: Annotated[int, typer.Option(help="Beam size; 1 is greedy search.")] = 4,
    length_penalty: Annotated[
        float, typer.Option(help="Exponent A of the length normalisation by |Y|^A; 0: none.")
    ] = 1.0,
    n_best: Annotated[int, typer.Option(help="Number of captions of each picture.")] = 1,
    max_new: Annotated[int | None, typer.Option(help="Maximum number of tokens. Default: 50.")] = None,
    maps: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write what each word looks at: .html (a page), .png (one picture), .json or .csv."
        ),
    ] = None,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Write captions of pictures."""
    require([run])
    from seqloom.analyse.caption_maps import check_maps_file
    from seqloom.files import new_file
    from seqloom.runs.load import load_captioner

    if maps is not None:
        new_file(check_maps_file(maps), "--maps")
    model = load_captioner(run, device)
    if maps is not None:
        model.check_maps()
    options: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "n_best": n_best, "max_new": max_new}
    found = model.caption(images, align=maps is not None, **options)
    for image, best in zip(images, found, strict=True):
        for each in best:
            record = {"image": str(image), "caption": each.text, "log_prob": each.log_prob, "finished": each.finished}
            print(json.dumps(record, ensure_ascii=False) if as_json else f"{image}\t{in_one_line(each.text)}")
    if maps is not None:
        model.draw_maps(images, found).save(maps)
        print(f"maps: {maps}")
