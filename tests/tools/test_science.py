"""tools/science.py: that the page says what was measured. Models here are tiny and random: what they say is nothing, but it is what
the program says of them."""
import json
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BINARY, ROOT

sys.path[:0] = [str(ROOT / "tools")]
from descent_science import CLAIMS, command, exits, families, listops, models, page, scaling  # noqa: E402
from descent_science.context import Context  # noqa: E402
from descent_science.section import AGREES, UNKNOWN, Section, Table, pair  # noqa: E402

TEXT = "".join(f"{a} plus {b} is {a + b}; " for a in range(20) for b in range(20))
DEPTHS = "one block for every step; trained T 4; each training batch drew T from 2 to 5"
RESULTS = ROOT / "docs/science/results.json"


def generate(path, shape, *options):
    """A random model whose tokens are bytes, of a context of 64."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sys.executable, ROOT / "tools/generate_model.py", shape, path, "--width", "16", "--heads", "2", "--hidden", "16", "--vocab", "260",
                           "--context", "64", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A directory of models as the repository has one, without science/."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "data").mkdir()
    for name, shape, options in (("nrgpt-shakespeare", "nrgpt", ["--steps", "4"]), ("cem-kjv", "cem", ["--layers", "1"])):
        generate(folder / f"{name}.gguf", shape, *options)
        (folder / "data" / f"{name}.val.txt").write_text(TEXT)
        (folder / "data" / f"{name}.figures.json").write_text(json.dumps({"facts": {"depth": DEPTHS}}))
    return folder


@pytest.fixture
def shelved(shelf, tmp_path):
    """The same, to change."""
    return shutil.copytree(shelf, tmp_path / "models")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """Where measurements of `shelf` are kept."""
    return tmp_path_factory.mktemp("work")


def science(models_folder, out, *options):
    """The command, in this process; what it wrote: (results.json, page)."""
    command.main([str(word) for word in ("--descent", BINARY, "--models", models_folder, "--out", out, "--quick", *options)])
    return json.loads((out.with_suffix("") / "results.json").read_text()), out.read_text()


def refused(*options):
    """What the command says when it ends without doing what was asked."""
    with pytest.raises(SystemExit) as ended:
        command.main(list(map(str, options)))
    assert isinstance(ended.value.code, str)
    return ended.value.code


def told(model, text, *options):
    """What `descent scale` says itself."""
    return json.loads(subprocess.run([BINARY, "scale", model, "--text", text, *options, "--json"], capture_output=True, check=True).stdout)


def entry(name, family, *, T="2", experiments=("families",), matched=None):
    """A run as models/science/index.json has it."""
    return {"name": name, "file": f"{name}.gguf", "family": family, "experiments": list(experiments), "seed": int(name[-1]), "matched": matched, "T": T,
            "trained_steps": None, "parameters": 1000, "multiply_adds": 2000.0, "training_multiply_adds": 3000, "training_tokens": 4000,
            "texts": {"validation": "../data/nrgpt-shakespeare.val.txt", "training": "../data/nrgpt-shakespeare.val.txt"}}


def index(folder, *runs):
    """models/science with these runs, each (entry, shape and options of its model)."""
    for one, shape in runs:
        generate(folder / "science" / one["file"], *shape)
    (folder / "science" / "index.json").write_text(json.dumps({"format": 1, "experiments": {}, "runs": [one for one, _ in runs]}))


# ---- The command

def test_the_page_has_the_numbers_of_the_program(shelf, work, tmp_path):
    """Every row of results.json is what `descent scale` says of the same text, and the page's table what results.json has."""
    done = subprocess.run([sys.executable, ROOT / "tools/science.py", "--descent", BINARY, "--models", shelf, "--out", tmp_path / "page.md", "--quick",
                           "--only", "shakespeare", "--only", "grid", "--work", work], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and re.search(r"\[\d+:\d\d, about \d+:\d\d left\] grid: descent scale cem-kjv", done.stderr), done.stderr
    found, text = json.loads((tmp_path / "page/results.json").read_text()), (tmp_path / "page.md").read_text()
    beginning = tmp_path / "beginning.txt"
    for claim, name, characters, steps in (("shakespeare", "nrgpt-shakespeare", 6000, "1,2,3,4,5,6,8,12,16"), ("grid", "cem-kjv", 2000, "1-4x1-4")):
        beginning.write_text(TEXT[:characters])
        rows, expected = found["results"][claim]["rows"], told(shelf / f"{name}.gguf", beginning, "-T", steps)["rows"]
        assert len(rows) == len(expected)
        for row, one in zip(rows, expected):
            assert {key: one[key] for key in ("steps", "predictions", "loss", "multiply_adds")} == {
                key: row[key] for key in ("steps", "predictions", "loss", "multiply_adds")}
            assert row["intervals"]["loss"] == one["intervals"]["loss"]
    for row in found["results"]["shakespeare"]["rows"]:
        low, high = row["intervals"]["loss"]
        assert f"| {row['steps']} | {row['loss']:.4f} | {low:.4f} to {high:.4f} |" in text
    for name in ("shakespeare", "grid"):
        assert f"(page/{name}.svg)" in text
        assert "<svg" in (tmp_path / "page" / f"{name}.svg").read_text()
    assert found["quick"] and "quick run" in text
    times = [found["measured"][name][side] for name in ("shakespeare", "grid") for side in ("from", "to")]
    assert min(times) in text and max(times) in text


def test_one_claim_again_leaves_the_others(shelf, work, tmp_path):
    out = tmp_path / "page.md"
    before, _ = science(shelf, out, "--only", "grid", "--only", "shakespeare", "--work", work)
    assert list(before["results"]) == ["shakespeare", "grid"]
    changed = json.loads(json.dumps(before))
    changed["results"]["grid"]["rows"][0]["loss"] = 77.0
    (out.with_suffix("") / "results.json").write_text(json.dumps(changed))
    after, text = science(shelf, out, "--only", "shakespeare", "--work", work)
    assert after["results"]["shakespeare"] == before["results"]["shakespeare"]
    assert after["results"]["grid"]["rows"][0]["loss"] == 77.0
    assert "measure all" in refused("--descent", BINARY, "--models", shelf, "--out", out, "--only", "shakespeare") and out.read_text() == text


def test_what_is_not_there_is_said_in_a_line(shelf, tmp_path):
    for options, message in ((["--descent", tmp_path / "none"], f"{tmp_path / 'none'}: No such file"),
                             (["--descent", BINARY, "--models", tmp_path, "--only", "grid"], "cem-kjv")):
        assert message in refused("--out", tmp_path / "page.md", *options)
    (tmp_path / "page").mkdir(exist_ok=True)
    (tmp_path / "page" / "results.json").write_text('{"descent_science": 99}')
    assert "expected 1" in refused("--render", "--out", tmp_path / "page.md") and not (tmp_path / "page.md").exists()


# ---- What was measured before

def test_what_was_measured_is_of_one_model_file_and_one_question(shelved, tmp_path):
    """The same file, under any name, is not measured again; another file under the same name is, and so is another question."""
    model, text = shelved / "nrgpt-shakespeare.gguf", tmp_path / "text.txt"
    text.write_text(TEXT[:300])

    def asked(path, *options):
        said = []
        ctx = Context(BINARY, shelved, tmp_path / "work", say=said.append)
        return ctx.run("scale", path, "--text", text, *options)["rows"][0]["loss"], len(said)

    first, measured = asked(model, "-T", 2)
    assert measured == 1 and asked(model, "-T", 2) == (first, 0)
    ctx = Context(BINARY, shelved, tmp_path / "work")
    kept = next((tmp_path / "work" / "measured").iterdir())
    kept.write_text(json.dumps({**json.loads(kept.read_text()), "stamp": {"at": "long ago", "load": 7, "processors": 1}}))
    ctx.run("scale", model, "--text", text, "-T", 2)
    assert ctx.stamps[-1]["at"] == "long ago"  # when it was measured, not when it was found
    shutil.copy(model, tmp_path / "again.gguf")
    assert asked(tmp_path / "again.gguf", "-T", 2) == (first, 0)
    deeper, measured = asked(model, "-T", 3)
    assert measured == 1 and deeper != first
    generate(model, "nrgpt", "--steps", "4", "--seed", "2")
    other, measured = asked(model, "-T", 2)
    assert measured == 1 and other != first and other == told(model, text, "-T", "2")["rows"][0]["loss"]
    text.write_text(TEXT[300:600])
    changed, measured = asked(model, "-T", 2)
    assert measured == 1 and changed != other


def test_what_is_computed_is_of_its_files_and_settings(shelved, tmp_path):
    ctx = Context(BINARY, shelved, tmp_path / "work")
    calls = []

    def compute():
        calls.append(1)
        return {"made": len(calls), "of": (1, 2)}

    model = shelved / "cem-kjv.gguf"
    assert ctx.cached("what", [model], [1], compute) == {"made": 1, "of": [1, 2]}
    assert ctx.cached("what", [model], [1], compute) == {"made": 1, "of": [1, 2]}
    assert ctx.cached("what", [model], [2], compute)["made"] == 2
    assert ctx.cached("else", [model], [1], compute)["made"] == 3
    generate(model, "cem", "--layers", "1", "--seed", "5")
    assert ctx.cached("what", [model], [1], compute)["made"] == 4


def test_inputs_are_those_of_the_answer(shelf, tmp_path):
    ctx = Context(BINARY, shelf, tmp_path / "work")
    text = ctx.head(shelf / "data/cem-kjv.val.txt", 700)
    assert text.read_text() == TEXT[:700]
    found = ctx.scale(shelf / "cem-kjv.gguf", "--text", text, "-T", "1,2x1")
    assert sorted(found["inputs"]) == ["1", "2x1"]
    for row in found["told"]["rows"]:
        inputs = found["inputs"][str(row["steps"])]
        assert sum(inputs["predictions"]) == row["predictions"] and len(inputs["nats"]) == row["inputs"] > 8
        assert sum(inputs["nats"]) / row["predictions"] == pytest.approx(row["loss"], rel=1e-12)


# ---- Models of the index

def test_no_index_and_a_part_of_one(shelved, tmp_path):
    """Sections of trained models say which runs are missing, with no index, and with some of it."""
    names = ("nrgpt_baselines", "cem_baselines", "variants", "gap")
    only = [word for name in names for word in ("--only", name)]
    found, text = science(shelved, tmp_path / "page.md", *only)
    assert text.count("**Verdict: cannot tell.**") == len(names) and not list((tmp_path / "page").glob("*.svg"))
    for name in ("`text-nrgpt` (seeds 1, 2 and 3)", "`text-llama-training` (seeds 1, 2 and 3)", "`text-cem-diagonal-none`", "`gap-gpt-"):
        assert name in re.sub(r"\s+", " ", text)
    reference = {"reference": "text-nrgpt-1", "in": "parameters", "off": 0.0}
    index(shelved, (entry("text-nrgpt-1", "nrgpt"), ["nrgpt", "--steps", "2"]), (entry("text-nrgpt-2", "nrgpt"), ["nrgpt", "--steps", "2", "--seed", "2"]),
          (entry("text-gpt-rec-parallel-parameters-1", "gpt-rec-parallel", matched=reference), ["gpt-rec-parallel", "--steps", "2"]),
          (entry("text-gpt-parameters-1", "gpt", T="none", matched=reference), ["gpt"]))
    found, text = science(shelved, tmp_path / "page.md", *only)
    text = re.sub(r"\s+", " ", text)
    assert "`text-nrgpt` (seed 3)" in text and "`text-gpt-parameters` (seeds 2 and 3)" in text and "`text-llama-training` (seeds 1, 2 and 3)" in text
    groups = {one["name"]: one for one in found["results"]["nrgpt_baselines"]["groups"]}
    beginning = tmp_path / "beginning.txt"
    beginning.write_text(TEXT[:2600])
    losses = {name: told(shelved / "science" / f"{name}.gguf", beginning, *options)["rows"][0]["loss"]
              for name, options in (("text-nrgpt-1", ["-T", "2"]), ("text-nrgpt-2", ["-T", "2"]), ("text-gpt-parameters-1", []))}
    own, gpt = groups["text-nrgpt"], groups["text-gpt-parameters"]
    assert own["loss"]["seeds"] == pytest.approx([losses["text-nrgpt-1"], losses["text-nrgpt-2"]])
    assert own["loss"]["value"] == pytest.approx((losses["text-nrgpt-1"] + losses["text-nrgpt-2"]) / 2)
    # Only the seed that both have is compared.
    assert gpt["less_reference"]["seeds"] == pytest.approx([losses["text-gpt-parameters-1"] - losses["text-nrgpt-1"]])
    assert gpt["less_reference"]["value"] == pytest.approx(gpt["less_reference"]["seeds"][0])
    assert f"| GPT | | 1,000 | 0.0020 | 0.000 | {losses['text-gpt-parameters-1']:.4f} |" in text
    assert (tmp_path / "page/nrgpt_baselines.svg").is_file() and not (tmp_path / "page/cem_baselines.svg").exists()


def test_missing_runs_are_the_plans(tmp_path):
    assert [run.name for run in models.plan.runs() if "gap" in run.experiments]
    there = models.plan.runs()[0]
    folder = tmp_path / "science"
    folder.mkdir()
    absent = models.Science(folder).missing(there.experiments[0])
    (folder / "index.json").write_text(json.dumps({"runs": [{**entry("x-1", "nrgpt"), "name": there.name}]}))
    left = models.Science(folder).missing(there.experiments[0])
    base = there.name.removesuffix(f"-{there.seed}")
    assert f"`{base}` (seeds 1, 2 and 3)" in absent and f"`{base}` (seeds 2 and 3)" in left and len(left) == len(absent)


# ---- Numbers

def test_differences_are_paired():
    """What both runs share of a window cancels: the interval of the difference has none of it."""
    hard = [10.0 * (i % 7) for i in range(70)]
    one = {"nats": [h + 1.0 for h in hard], "predictions": [10] * 70}
    other = {"nats": hard, "predictions": [10] * 70}
    apart = scaling.difference(one, other)
    assert apart == {"value": pytest.approx(0.1), "low": pytest.approx(0.1), "high": pytest.approx(0.1)}
    assert families.sure({**apart, "seeds": [0.1, 0.2]}, 1) and not families.sure({**apart, "seeds": [0.1, -0.2]}, 1)
    with pytest.raises(ValueError, match="different inputs"):
        scaling.difference(one, {**other, "predictions": [11] * 70})


def test_an_exit_is_beside_what_fixed_steps_give_at_its_cost():
    """Cost 1.5 lies midway between T = 1 and T = 2, whose losses are 3 and 2: fixed T would have 2.5 there."""
    def inputs(nats, cost):
        return {"nats": [nats * 4] * 8, "predictions": [4] * 8, "tokens": [4] * 8, "token_steps": [4] * 8, "weights": [cost * 4] * 8, "attention": [0] * 8,
                "head": [0] * 8, "exit": [0] * 8}

    fixed = {str(t): inputs({1: 3.0, 2: 2.0}.get(t, 4.0), float(t)) for t in exits.FIXED}
    point = exits._point(inputs(2.25, 1.5), fixed)
    assert point["multiply_adds_a_token"] == 1.5 and point["loss"] == 2.25
    assert point["less_fixed_at_equal_cost"]["value"] == pytest.approx(-0.25)
    assert exits._point(fixed["2"], fixed)["less_fixed_at_equal_cost"]["value"] == pytest.approx(0)
    assert exits._point(inputs(5.0, 12.0), fixed)["less_fixed_at_equal_cost"]["value"] == pytest.approx(1.0)


def test_questions_are_sorted_by_nesting(tmp_path):
    assert listops.nesting("add_10,(,1,2,),=") == 1 and listops.nesting("max_10,(,1,add_10,(,1,max_10,(,3,4,),),),=") == 3
    (tmp_path / "data").mkdir()
    (tmp_path / "data/m.eval.tsv").write_text("add_10,(,1,2,),=\t3\nmax_10,(,1,add_10,(,1,2,),),=\t3\nmax_10,(,5,2,),=\t5\n")
    ctx = Context(BINARY, tmp_path, tmp_path / "work")
    files = listops.questions(ctx, models.Shipped(tmp_path, "m"), 3)
    assert files[1].read_text().splitlines() == ["add_10,(,1,2,),=\t3", "max_10,(,5,2,),=\t5"] and len(files[2].read_text().splitlines()) == 1
    new = [line.split("\t") for line in files[3].read_text().splitlines()]
    assert len(new) == 3 and all(listops.nesting(prompt) == 3 and prompt.endswith("=") for prompt, _ in new)
    for prompt, answer in new:
        worked = models.listops.chain(models.listops.VOCAB.encode(prompt).tolist()[:-1])
        assert models.listops.VOCAB.tokens[worked[-2]] == answer


@pytest.mark.parametrize("steps, expected", [(4, (4, 4)), ("3x2", (3, 2)), ("2x2", (2, 2)), ("12", (12, 12))])
def test_depths_of_two_kinds(steps, expected):
    assert pair(steps) == expected


# ---- The page

def test_sections_are_whole():
    with pytest.raises(ValueError, match="verdict"):
        Section("a", "b", "c", "maybe", "d")
    with pytest.raises(ValueError, match="does not see"):
        Section("a", "b", "c", AGREES, "d", draw=lambda: None)
    with pytest.raises(ValueError, match="2 cells"):
        Table(("one",), [("a", "b")])
    whole = Section("A claim", "It *says* so.", "We saw it.", UNKNOWN, "Too little.", missing=["`x` (seed 1)"])
    told_ = {"measured": {"shakespeare": {"from": "then", "to": "now"}}, "version": "descent 1", "machine": "a machine", "quick": False}
    text = page.render(told_, {"shakespeare": whole})
    assert "| 1 | A claim | cannot tell |" in text and "*Not there yet: `x` (seed 1).*" in text and "quick run" not in text and "Measured then to now with" in text


@pytest.fixture(scope="module")
def committed():
    return json.loads(RESULTS.read_text())


def same_picture(one, other):
    """Two drawings of the same: another processor may round a coordinate's last digit otherwise, and so name a shape otherwise."""
    number, name = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?"), r"\b(?:[mpC]|image)(?:[0-9a-f]{10}|\d+_\d+_[0-9a-f]{10})\b|base64,[^\"]*"
    one, other = (re.sub(name, "shape", text) for text in (one, other))
    pairs = zip(number.findall(one), number.findall(other))
    return number.sub("", one) == number.sub("", other) and all(abs(float(x) - float(y)) < 1e-3 for x, y in pairs)


def test_the_page_is_what_its_numbers_render_to(committed, tmp_path):
    """docs/science.md and its pictures are written from docs/science/results.json and by nobody's hand."""
    command.written(committed, tmp_path / "science.md")
    assert (tmp_path / "science.md").read_text() == (ROOT / "docs/science.md").read_text(), "run tools/science.py --render"
    drawn = {path.name for path in (tmp_path / "science").iterdir()}
    assert drawn == {path.name for path in RESULTS.parent.iterdir()}
    for name in drawn:
        again, there = ((folder / name).read_text() for folder in (tmp_path / "science", RESULTS.parent))
        assert again == there if name.endswith(".json") else same_picture(again, there), name


def test_the_page_has_every_claim(committed):
    assert list(committed["results"]) == list(committed["measured"]) == list(CLAIMS) and not committed["quick"]
    text = (ROOT / "docs/science.md").read_text()
    assert "Gaussian-process" in text and "MMLU" in text
