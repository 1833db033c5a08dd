"""Cards and drawings say what was measured, keep the two questions apart, and name what must not ship."""
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

from descent_train import card, data, figures, listops, measure, vocab

SVG = "{http://www.w3.org/2000/svg}"
FACTS = {fact: f"some {fact}" for fact in figures.REQUIRED_FACTS}


@pytest.fixture(scope="module")
def text():
    rng = np.random.Generator(np.random.PCG64(1))
    chars = vocab.Chars("abcd")
    tokens = np.cumsum(1 + (rng.random(3000) < 0.2)) % 4  # mostly the next letter
    return data.Data(tokens[:2500].astype(np.uint16), tokens[2500:].astype(np.uint16), chars, chars.decode(tokens[2500:]))


def flat(strength):
    """The next letter with the given logit at T, the others 0."""
    return lambda ids, depths: {T: strength(T) * torch.nn.functional.one_hot((ids + 1) % 4, 4).float() for T in depths}


@pytest.fixture(scope="module")
def made(text):
    swept = measure.losses(flat(lambda T: T / 2), text.val, 16, [1, 2, 4])
    fixed = measure.losses(flat(lambda T: 0.6 * T), text.val, 16, [1, 2, 4])
    return {"name": "tiny", "summary": "A tiny thing.", "facts": FACTS, "measured_on": "Measured on 499 predictions.",
            "swept": figures.depth_table(swept, text), "fixed": figures.depth_table(fixed, text),
            "ngram": figures.ngram_table(text, 16, swept), "context_kl": {"mean": 0.2, "last_quarter": 0.1},
            "attention_entropy": {"median": 1.25, "uniform": 3.5}, "relative_update": {"of": "the first step", "median": 0.75},
            "commands": {"measure": "descent eval tiny.gguf --file tiny.txt", "train": ["train one", "train two"]}}


def test_rows_and_differences_are_those_of_the_losses(text, made):
    rows = made["swept"]["rows"]
    hits = np.mean((text.val[1:].astype(int) - text.val[:-1]) % 4 == 1)
    for row, T in zip(rows, (1, 2, 4)):
        loss = math.log(math.exp(T / 2) + 3) - hits * T / 2
        assert row["T"] == str(T) and row["loss"] == pytest.approx(loss, rel=1e-6) and row["low"] < loss < row["high"]
        assert row["perplexity"] == pytest.approx(math.exp(loss), rel=1e-6)
        assert row["bits_per_byte"] == pytest.approx(loss / math.log(2), rel=1e-6)  # a letter is a byte
    first = made["swept"]["compared"][0]
    assert (first["from"], first["to"]) == ("1", "2")
    assert first["difference"] == pytest.approx(rows[1]["loss"] - rows[0]["loss"]) and first["high"] < 0


def test_the_best_depth_is_what_the_longest_table_is_compared_with(made):
    n = made["ngram"]
    best = min(made["swept"]["rows"], key=lambda r: r["loss"])
    assert [r["order"] for r in n["rows"]] == [2, 5] and (n["beaten_by"]["from"], n["beaten_by"]["to"]) == ("5-gram", best["T"])
    assert n["beaten_by"]["difference"] == pytest.approx(best["loss"] - n["rows"][1]["loss"])


def test_a_card_has_every_number_in_its_section(made):
    text = card.card(made)
    assert text.startswith("# tiny\n\nA tiny thing.\n") and text.endswith("    train one\n    train two\n")
    sections = dict(part.split("\n", 1) for part in text.split("\n## ")[1:])
    assert list(sections) == ["One model, T swept", "A model for each T", "Beside n-gram tables",
                              "Whether it uses its context and its depth", "Again"]
    for which, title in (("swept", "One model, T swept"), ("fixed", "A model for each T")):
        for row in made[which]["rows"]:
            assert f"| {row['T']} | {row['loss']:.5f} | {row['low']:.4f} to {row['high']:.4f} |" in sections[title]
        for d in made[which]["compared"]:
            assert f"| {d['from']} | {d['to']} | {d['difference']:+.5f} |" in sections[title]
        assert f"(tiny-{which}.svg)" in sections[title]
    for row in made["ngram"]["rows"]:
        assert f"| {row['order']}-gram | {row['loss']:.5f} |" in sections["Beside n-gram tables"]
    use = sections["Whether it uses its context and its depth"]
    assert all(number in use for number in ("0.2000 nats", "0.1000 nats", "1.25 nats", "3.50", "0.7500", "the first step"))
    assert all(f"| {fact} | some {fact} |" in text for fact in FACTS)


def test_what_was_not_measured_is_not_on_the_card(made):
    short = {k: v for k, v in made.items() if k not in ("fixed", "ngram", "context_kl", "attention_entropy", "relative_update")}
    text = card.card(short)
    assert [part.split("\n")[0] for part in text.split("\n## ")[1:]] == ["One model, T swept", "Again"]
    with pytest.raises(ValueError, match="lack the facts size"):
        card.card({**made, "facts": {k: v for k, v in FACTS.items() if k != "size"}})


def test_what_is_written_is_the_card_and_two_drawings(made, tmp_path):
    figures.write(made, tmp_path / "figures.json")
    paths = card.write(figures.read(tmp_path / "figures.json"), tmp_path)
    assert [p.rsplit("/", 1)[1] for p in paths] == ["tiny.md", "tiny-swept.svg", "tiny-fixed.svg"]
    assert (tmp_path / "tiny.md").read_text() == card.card(made)
    for which in ("swept", "fixed"):
        root = ElementTree.parse(tmp_path / f"tiny-{which}.svg").getroot()
        titles = [t.text for t in root.iter(SVG + "title")]
        for row in made[which]["rows"]:
            assert f"T = {row['T']}: {row['loss']:.4f}, 95% {row['low']:.4f} to {row['high']:.4f}" in titles
        # A line joins readings of one model, never different models.
        assert len(list(root.iter(SVG + "polyline"))) == (which == "swept")
        texts = [t.text for t in root.iter(SVG + "text")]
        assert "5-gram table" in texts
        assert any(("this one model" if which == "swept" else "a model each") in t for t in texts)
        heights = [float(c.get("cy")) for c in root.iter(SVG + "circle")]
        losses = [r["loss"] for r in made[which]["rows"]]
        assert np.array_equal(np.argsort(heights), np.argsort([-x for x in losses]))


def test_a_model_that_loses_to_the_table_or_ignores_context_does_not_ship(made):
    assert made["ngram"]["beaten_by"]["difference"] > 0  # a table of strengths cannot beat counts
    said = figures.reasons_not_to_ship({**made, "context_kl": {"mean": 0.049, "last_quarter": 0.0}})
    assert len(said) == 2 and "5-gram" in said[0] and "0.0490" in said[1]
    better = {**made["ngram"], "beaten_by": {**made["ngram"]["beaten_by"], "difference": -0.01}}
    assert figures.reasons_not_to_ship({**made, "ngram": better, "context_kl": {"mean": 0.05, "last_quarter": 0}}) == []


def test_exact_match_has_its_counts_by_operations_and_wilsons_interval(made, tmp_path):
    items = listops.data(listops.Settings(), 1, 50, seed=2)[1]
    right = {1: np.zeros(50, bool), 3: np.arange(50) % 5 > 0}
    table = figures.match_table(right, items)
    row = table["rows"][1]
    assert (row["T"], row["exact_match"], row["right"], row["items"]) == ("3", 0.8, 40, 50)
    assert (row["low"], row["high"]) == pytest.approx((0.6696, 0.8876), abs=1e-4)
    for n, (good, all_of) in row["by_operations"].items():
        of = [i for i, item in enumerate(items) if listops.VOCAB.decode(item.prompt).count("(") == int(n)]
        assert (good, all_of) == (sum(i % 5 > 0 for i in of), len(of))
    only = {k: made[k] for k in ("name", "summary", "facts", "measured_on", "commands")}
    text = card.card({**only, "swept": table})
    assert "| 3 | 0.800 | 0.670 to 0.888 | 40 of 50 |" in text and "Wilson" in text
    card.write({**only, "swept": table}, tmp_path)
    assert "exact match" in (tmp_path / "tiny-swept.svg").read_text()


def test_losses_of_fixed_runs_are_kept_and_read_at_their_own_depth(text, tmp_path):
    paths = {}
    for T in (1, 2):
        paths[T] = tmp_path / f"fixed{T}.npz"
        figures.save_losses(measure.losses(flat(lambda t: T + t), text.val, 16, [1, 2]), paths[T])
    got = figures.fixed_losses(paths)
    assert list(got) == ["1", "2"] and [of.mean for of in got.values()] == [
        measure.losses(flat(lambda t: 2 * T), text.val, 16, [T])[T].mean for T in (1, 2)]
    assert [r["T"] for r in figures.depth_table(got, text)["rows"]] == ["1", "2"]
    figures.save_losses(measure.losses(flat(lambda t: 1), text.val, 16, [(2, 1)]), tmp_path / "cem.npz")
    assert list(figures.load_losses(tmp_path / "cem.npz")) == ["2x1"]
    with pytest.raises(ValueError, match="cem.npz has no losses at T = 2x2, only at 2x1"):
        figures.fixed_losses({(2, 2): tmp_path / "cem.npz"})
