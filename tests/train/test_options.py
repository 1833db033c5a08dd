"""A wrong option is told at once, with status 2 and by its name; a T is read as the model has it."""
import argparse

import pytest

from descent_train import depth, options

TEXT = ["run", "--text", "verse.txt"]


@pytest.mark.parametrize("given, complaint", [
    ("", "expected one of --text FILE and --listops OPS"),
    ("--text verse.txt --listops max_10", "expected one of --text FILE and --listops OPS"),
    ("--text v --hidden 33", "--hidden 33 is no multiple of --width 192"),
    ("--text v --model cem --heads 5", "--width 192 is not 5 heads of an even width"),
    ("--text v --model gpt --heads 193", "--heads 193 are more than --width 192"),
    ("--text v --heads 0", "argument --heads: '0'; expected a whole number of at least 1"),
    ("--text v --batch 0", "argument --batch: '0'"),
    ("--text v --block 7", "argument --block: '7'; expected a whole number of at least 8"),
    ("--text v --iterations 0", "argument --iterations: '0'"),
    ("--text v --validate-every 0", "argument --validate-every: '0'"),
    ("--text v --threads -1", "argument --threads: '-1'"),
    ("--text v --rank -2", "argument --rank: '-2'; expected a whole number of at least -1"),
    ("--text v --width 1.5", "argument --width: '1.5'; expected a whole number"),
    ("--text v --lr -0.1", "argument --lr: '-0.1'; expected a number of at least 0"),
    ("--text v --lr nan", "argument --lr: 'nan'"),
    ("--text v --lr inf", "argument --lr: 'inf'"),
    ("--text v --clip 0", "argument --clip: '0'; expected a number above 0"),
    ("--text v --short-windows 1.1", "argument --short-windows: '1.1'; expected a number of at least 0 and at most 1"),
    ("--text v --dropout 0.91", "argument --dropout: '0.91'; expected a number of at least 0 and at most 0.9"),
    ("--text v --beta 0", "argument --beta: '0'; expected a number above 0"),
    ("--text v --rate fast", "--rate is 'fast'; expected matrix, diag or a number"),
    ("--text v --rate nan", "--rate is 'nan'"),
    ("--text v --random-steps 3 1", "--random-steps 3 1: expected LOW <= HIGH"),
    ("--text v --random-steps 0 2", "argument --random-steps: '0'"),
    ("--text v --random-steps 1 2 --model gpt", "--random-steps: gpt has no T"),
    ("--text v --read all --model cem", "--read all needs states that do not depend on T; those of cem do"),
    ("--text v --validate-at 0", "--validate-at: '0' is no T of nrgpt; expected a number of at least 1"),
    ("--text v --validate-at a", "--validate-at: 'a' is no T"),
    ("--text v --validate-at 1,,2", "--validate-at: '' is no T"),
    ("--text v --validate-at 2x1", "--validate-at: '2x1' is no T of nrgpt"),
    ("--text v --validate-at 1x1x1 --model cem", "--validate-at: '1x1x1' is no T of cem; expected a number of at least 1 or two"),
    ("--text v --vocab words", "--vocab is 'words'; expected chars, bpe:N or unigram:N"),
    ("--text v --vocab bpe", "--vocab is 'bpe'"),
    ("--text v --vocab bpe:0", "--vocab is 'bpe:0'"),
    ("--text v --vocab chars:9", "--vocab is 'chars:9'"),
    ("--text v --vocab bpe:99999999999", "--vocab is 'bpe:99999999999'"),
])
def test_a_wrong_option_is_named(capsys, given, complaint):
    with pytest.raises(SystemExit) as ended:
        options.arguments(["run", *given.split()])
    assert ended.value.code == 2 and f"train.py: error: {complaint}" in capsys.readouterr().err


def test_settings_are_all_but_what_may_differ_each_time():
    a = options.arguments([*TEXT, "--threads", "2", "--device", "cpu", "--checkpoint-minutes", "9"])
    assert options.settings(a).keys() == vars(a).keys() - {"run", "threads", "device", "checkpoint_minutes"}
    assert {**options.defaults(), "text": "verse.txt"} == vars(options.arguments(TEXT))


@pytest.mark.parametrize("model, T", [
    ("nrgpt", {"3": 3}), ("gpt-rec-parallel", {"3": 3}), ("cem", {"3": (3, 3), "3x2": (3, 2)}), ("cem-swiglu", {"3": 3}),
    ("llama-cem", {"3": 3}), ("gpt", {"none": None}), ("llama", {"none": None})])
def test_a_depth_is_what_the_model_has(model, T):
    """As the engine takes them: two numbers where there are two kinds of step, none where there is no T."""
    assert {text: depth.read(text, model) for text in T} == T
    for bad in {"0", "-1", "x", "3x", "3x2x1", "3x2", "none", "3", "\u0663x"} - T.keys():
        with pytest.raises(ValueError, match=f"is no T of {model}; expected"):
            depth.read(bad, model)
    served = argparse.Namespace(model=model, steps=5)
    assert depth.several("", served) == [depth.trained(served)]
    assert all(depth.read(depth.label(t), model) == t for t in [*T.values(), depth.trained(served)])
