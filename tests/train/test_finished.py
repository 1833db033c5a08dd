"""A run from its first step to its card, by the two programs; what a card says of a run is what was asked of it."""
import json
import pathlib
import shlex
import shutil

import pytest

import card as card_program
import train
from descent_train import finished, loop
from descent_train.data import DataError

TEXT = pathlib.Path(__file__).resolve().parents[2] / "models" / "data" / "nrgpt-shakespeare.val.txt"
SMALL = ["--width", "16", "--heads", "2", "--block", "32", "--batch", "2", "--iterations", "4", "--warmup", "2"]
KINDS = {
    "text": ["--text", "verse.txt"],
    "listops": ["--listops", "max_10,add_10", "--lines", "300", "--mask", "strict"],
    "layers": ["--text", "verse.txt", "--model", "cem", "--layers", "1", "--vocab", "bpe:400"],
}
CARD = ["--name", "tiny", "--summary", "Tiny.", "--trained-on", "some verse", "--licence", "public domain"]


@pytest.fixture(scope="module", params=list(KINDS))
def runs(request, tmp_path_factory):
    """Directories of one kind of run: T drawn at random, and T fixed at 1 and at 2."""
    base = tmp_path_factory.mktemp(request.param)
    (base / "verse.txt").write_text(TEXT.read_text()[:20000])
    options = [str(base / o) if o == "verse.txt" else o for o in KINDS[request.param]] + SMALL
    made = {}
    depths = {"random": ["--steps", "2", "--random-steps", "1", "3"], "1": ["--steps", "1"], "2": ["--steps", "2"]}
    for name, depth in depths.items():
        made[name] = base / name
        train.main([str(base / name), *options, *depth])
    return made


def test_a_run_gets_its_card(runs, tmp_path, capsys):
    layered = "layers" in str(runs["1"])
    status = card_program.main([str(runs["random"]), *CARD, "--at", "1,2,4", "--fixed", str(runs["1"]), str(runs["2"]),
                                "--to", str(tmp_path)])
    figures = json.loads((tmp_path / "data" / "tiny.figures.json").read_text())
    expected = ["1x1", "2x2", "4x4"] if layered else ["1", "2", "4"]
    assert [r["T"] for r in figures["swept"]["rows"]] == expected
    assert [r["T"] for r in figures["fixed"]["rows"]] == expected[:2]
    card = (tmp_path / "tiny.md").read_text()
    assert all(value in card for value in figures["facts"].values()) and "drew T from 1 to 3" in card
    assert figures["relative_update"]["median"] > 0
    assert 0 < figures["attention_entropy"]["median"] <= figures["attention_entropy"]["uniform"] + 1e-6
    said = capsys.readouterr()
    if "listops" in str(runs["1"]):
        assert status == 0 and len((tmp_path / "data" / "tiny.eval.tsv").read_text().splitlines()) == 1000
    else:  # four steps of training: this one must not ship
        assert status == 1 and "loses to the 5-gram table" in said.err and "hardly depend on context" in said.err
        text = (runs["1"].parent / "verse.txt").read_text()
        assert (tmp_path / "data" / "tiny.val.txt").read_text() == text[int(0.9 * len(text)):]
    for line in said.out.splitlines():
        assert pathlib.Path(line).is_file()


def test_the_commands_on_a_card_make_the_same_runs_again(runs, tmp_path):
    card_program.main([str(runs["random"]), *CARD, "--at", "1", "--fixed", str(runs["1"]), "--to", str(tmp_path)])
    commands = json.loads((tmp_path / "data" / "tiny.figures.json").read_text())["commands"]["train"]
    for name, command in zip(("random", "1"), commands):
        words = shlex.split(command)
        assert words[:2] == ["python3", "tools/train/train.py"]
        again = vars(train.arguments(words[2:]))
        settings = json.loads((runs[name] / "settings.json").read_text())
        if settings["text"]:
            settings["text"] = pathlib.Path(settings["text"]).name  # where it lay is nobody's business
        assert {k: again[k] for k in settings} == settings


def test_only_runs_alike_but_for_a_fixed_depth_are_compared(runs):
    opened = {name: finished.Finished(str(path)) for name, path in runs.items()}
    with pytest.raises(ValueError, match="not trained at T"):
        finished.fixed({opened["random"].trained: opened["random"]})
    opened["2"].options.read = "all"
    with pytest.raises(ValueError, match="not trained at T"):
        finished.fixed({opened[n].trained: opened[n] for n in ("1", "2")})
    opened["2"].options.read, opened["2"].options.rate = "last", "diag"
    with pytest.raises(ValueError, match="differ in more than T: rate"):
        finished.fixed({opened[n].trained: opened[n] for n in ("1", "2")})
    opened["2"].options.rate, opened["2"].options.width = opened["1"].options.rate, 24
    with pytest.raises(ValueError, match="differ in more than T: width"):
        finished.fixed({opened[n].trained: opened[n] for n in ("1", "2")})


def test_a_run_that_is_not_finished_has_no_card(runs, tmp_path):
    for name in ("settings.json", "state.pt"):
        (tmp_path / name).write_bytes((runs["1"] / name).read_bytes())
    settings = json.loads((tmp_path / "settings.json").read_text())
    (tmp_path / "settings.json").write_text(json.dumps({**settings, "iterations": 5}))
    with pytest.raises(DataError, match="step 4 of 5"):
        finished.Finished(str(tmp_path))


def test_a_run_begun_before_an_option_was_there_is_opened_and_taken_up(runs, tmp_path):
    shutil.copytree(runs["1"], tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings.pop("read") == "last"
    (tmp_path / "run" / "settings.json").write_text(json.dumps(settings))
    opened = finished.Finished(str(tmp_path / "run"))
    assert opened.options.read == "last"
    loop.Run(str(tmp_path / "run"), opened.model, opened.data, None, vars(opened.options)).open({**settings, "read": "last"})


@pytest.mark.parametrize("model, fact, T", [
    ("gpt --layers 2", "`gpt`, a baseline of NRGPT's paper: 2 blocks", None),
    ("gpt-rec-parallel --steps 2", "`gpt-rec-parallel`, a baseline of NRGPT's paper: one block for every step", "1,3"),
    ("llama --layers 1", "`cem`: llama attention, swiglu MLP", None),
    ("cem-swiglu --layers 1 --steps 2", "`cem`: cem attention, swiglu MLP", "1,3"),
])
def test_baselines_and_hybrids_get_cards_too(tmp_path, capsys, model, fact, T):
    (tmp_path / "my verse.txt").write_text(TEXT.read_text()[:20000])
    train.main([str(tmp_path / "run"), "--text", str(tmp_path / "my verse.txt"), "--model", *model.split(), *SMALL])
    assert ("T = " in capsys.readouterr().err) == (T is not None)
    card_program.main([str(tmp_path / "run"), *CARD, *(["--at", T] if T else []), "--to", str(tmp_path)])
    text = (tmp_path / "tiny.md").read_text()
    assert f"| family, variant | {fact}" in text and "--text 'my verse.txt'" in text and "FF2W" not in text
    assert ("| depth | no T |" in text) == ("--steps 1" not in text) == (T is None)
    assert (tmp_path / "tiny-swept.svg").exists() == (T is not None)
    rows = json.loads((tmp_path / "data" / "tiny.figures.json").read_text())["swept"]["rows"]
    assert [row["T"] for row in rows] == (T or "none").split(",")


def test_the_trainer_logs_what_the_card_will_show(runs, capfd):
    lines = [json.loads(line) for line in (runs["random"] / "log.jsonl").read_text().splitlines()]
    (figures,) = [line["figures"] for line in lines if "figures" in line]
    found = finished.Finished(str(runs["random"]))
    assert figures == json.loads(json.dumps(found.swept([found.trained])))
    train.report(figures)
    said = capfd.readouterr().err
    assert "attention entropy" in said and f"T = {figures['swept']['rows'][0]['T']}:" in said
    assert ("5-gram table" in said) == (found.items is None)
