"""Every generated line is checked by a reader and calculator of its own, that knows the grammar and nothing of the module."""
import pathlib

import numpy as np
import pytest

from descent_train import listops
from descent_train.data import DataError

EVAL = pathlib.Path(__file__).resolve().parents[2] / "models" / "data" / "nrgpt-listops.eval.tsv"
DIGITS = "0123456789"


def parse(words):
    """The tree of a whole expression: a digit, or (name, operands)."""
    def one(at):
        if words[at] in DIGITS:
            return int(words[at]), at + 1
        name, bracket, at = words[at], words[at + 1], at + 2
        assert bracket == "(" and name not in "()="
        operands = []
        while words[at] != ")":
            operand, at = one(at)
            operands.append(operand)
        return (name, operands), at + 1
    tree, end = one(0)
    assert end == len(words)
    return tree


def value(tree):
    if isinstance(tree, int):
        return tree
    v = [value(t) for t in tree[1]]
    if tree[0] == "min_10":
        return min(v)
    if tree[0] == "max_10":
        return max(v)
    if tree[0] == "median_10":
        return sorted(v)[1]  # of two the larger, of three the middle
    if tree[0] == "add_10":
        return sum(v) % 10
    if tree[0] == "prod_10":
        return v[0] * v[1] * (v[2] if len(v) == 3 else 1) % 10
    assert tree[0] == "nadd_10"
    return (v[0] - v[1] + (v[2] if len(v) == 3 else 0)) % 10


def depth(tree):
    return 0 if isinstance(tree, int) else 1 + max(map(depth, tree[1]))


def evaluate_first(tree):
    """(tree with its first innermost operation evaluated, whether there was one)."""
    if isinstance(tree, int):
        return tree, False
    name, operands = tree
    for i, operand in enumerate(operands):
        new, done = evaluate_first(operand)
        if done:
            return (name, operands[:i] + [new] + operands[i + 1:]), True
    return value(tree), True


def operations(tree):
    return [] if isinstance(tree, int) else [tree] + [o for t in tree[1] for o in operations(t)]


def lines_of(tokens):
    text = listops.VOCAB.decode(tokens)
    assert text.endswith("<eos>")
    return [line.strip(",").split(",") for line in text.split("<eos>")[:-1]]


def expressions(line):
    return [part.strip(",").split(",") for part in ",".join(line).split("=")]


@pytest.fixture(scope="module")
def made():
    return listops.data(listops.Settings(), 4000, 300, seed=5)


def test_every_line_is_worked_out_one_first_innermost_operation_at_a_time(made):
    data, _ = made
    lines = lines_of(data.train)
    assert len(lines) == 4000
    for line in lines:
        trees = [parse(e) for e in expressions(line)]
        assert isinstance(trees[-1], int) and len(trees) == 1 + len(operations(trees[0]))
        for before, after in zip(trees, trees[1:]):
            assert evaluate_first(before)[0] == after


def test_expressions_are_as_the_settings_say(made):
    trees = [parse(expressions(line)[0]) for line in lines_of(made[0].train)]
    assert {depth(t) for t in trees} == {1, 2}
    used = [o for t in trees for o in operations(t)]
    assert {name for name, _ in used} == set(listops.OPERATIONS)
    assert {len(operands) for _, operands in used} == {2, 3}
    assert {o for _, operands in used for o in operands if isinstance(o, int)} == set(range(10))
    outer = [o for _, operands in trees for o in operands]
    nested = sum(isinstance(o, tuple) for o in outer) / len(outer)
    assert abs(nested - 0.25) < 4 * (0.25 * 0.75 / len(outer)) ** 0.5  # four standard deviations, for one fixed seed
    three = sum(len(operands) == 3 for _, operands in used) / len(used)
    assert abs(three - 0.5) < 4 * 0.5 / len(used) ** 0.5


def test_other_settings():
    settings = listops.Settings(operations=("max_10", "add_10"), depth=3, operands=(3, 3), nest=0.5)
    data, items = listops.data(settings, 500, 20, seed=1)
    used = [o for line in lines_of(data.train) for o in operations(parse(expressions(line)[0]))]
    assert {name for name, _ in used} == {"max_10", "add_10"} and {len(operands) for _, operands in used} == {3}
    assert max(depth(parse(expressions(line)[0])) for line in lines_of(data.train)) == 3 and len(items) == 20


def test_test_items_differ_and_training_has_none_of_them(made):
    data, items = made
    prompts = [listops.VOCAB.decode(item.prompt) for item in items]
    assert len(set(prompts)) == len(items) == 300 and all(p.endswith(",=") for p in prompts)
    trained = {",".join(expressions(line)[0]) for line in lines_of(data.train)}
    assert not trained & {p.removesuffix(",=") for p in prompts}
    for item, prompt in zip(items, prompts):
        tree = parse(prompt.removesuffix(",=").split(","))
        assert listops.VOCAB.tokens[item.answer] == str(value(tree)) and item.operations == len(operations(tree))


def test_validation_is_the_worked_chains_of_the_test_items(made):
    data, items = made
    lines = lines_of(data.val)
    assert [",".join(expressions(line)[0]) + ",=" for line in lines] == [listops.VOCAB.decode(i.prompt) for i in items]
    assert [expressions(line)[-1] for line in lines] == [[listops.VOCAB.tokens[i.answer]] for i in items]
    assert data.val_text == listops.VOCAB.decode(data.val)


def test_everything_follows_from_the_seed():
    a, a_items = listops.data(listops.Settings(), 200, 30, seed=3)
    b, b_items = listops.data(listops.Settings(), 200, 30, seed=3)
    c, c_items = listops.data(listops.Settings(), 200, 30, seed=4)
    assert a.train.tolist() == b.train.tolist() and a_items == b_items
    assert a.train.tolist() != c.train.tolist() and a_items != c_items
    # The generator is Python's, the same in every version: these are what it draws.
    first = "prod_10,(,4,4,),=,6,<eos>"
    assert listops.VOCAB.decode(listops.data(listops.Settings(), 1, 0, seed=1)[0].train) == first


def test_the_vocabulary_is_that_of_the_authors_checkpoints():
    assert listops.VOCAB.tokens == ["<eos>", "(", ")", "=", "min_10", "max_10", "median_10", "add_10", "prod_10", "nadd_10",
                                    *DIGITS]


def test_items_are_written_as_descent_eval_reads_them(made, tmp_path):
    _, items = made
    listops.write_items(items, tmp_path / "eval.tsv")
    for line, item in zip((tmp_path / "eval.tsv").read_text().splitlines(), items):
        prompt, answer = line.split("\t")
        assert prompt.endswith("),=") and str(value(parse(prompt[:-2].split(",")))) == answer
    assert listops.read_items(tmp_path / "eval.tsv") == items


def test_the_shipped_items_are_read():
    items = listops.read_items(EVAL)
    assert len(items) == listops.TEST_ITEMS
    for item in items:
        tree = parse(listops.VOCAB.decode(item.prompt).removesuffix(",=").split(","))
        assert str(value(tree)) == listops.VOCAB.tokens[item.answer]


def test_what_is_no_item_is_an_error_that_names_its_line(tmp_path):
    path = tmp_path / "eval.tsv"
    good = "add_10,(,1,2,),=\t3\n"
    for bad, says in (("add_10,(,1,2,),=\n", "a tab"), ("add_10,(,1,2,)\t3\n", "'='"), ("add_10,(,1,2,),=\t33\n", "one word")):
        path.write_text(good + bad)
        with pytest.raises(DataError, match=f"line 2: expected .*{says}"):
            listops.read_items(path)


def test_impossible_settings_are_refused():
    for bad in (dict(operations=("sub_10",)), dict(operations=()), dict(depth=0), dict(operands=(1, 3)), dict(operands=(2, 4)),
                dict(nest=1.5)):
        with pytest.raises(DataError):
            listops.Settings(**bad)
    with pytest.raises(DataError, match="101 test items wanted"):
        listops.data(listops.Settings(operations=("max_10",), depth=1, operands=(2, 2)), 1, 101, seed=1)


def test_windows_begin_where_lines_do():
    made, _ = listops.data(listops.Settings(), 500, 10, 4)
    assert len(made.starts) == 500 and made.starts[0] == 0
    assert (made.train[made.starts[1:] - 1] == listops.EOS).all() and (made.train == listops.EOS).sum() == 500


def test_what_a_line_asks_is_given():
    made, _ = listops.data(listops.Settings(), 200, 10, 4)
    ends = np.append(made.starts[1:], len(made.train))
    for begin, end in zip(made.starts, ends):
        line, given = made.train[begin:end].tolist(), made.given[begin:end].tolist()
        first = line.index(listops.EQUALS)
        assert given == [i <= first for i in range(len(line))]


def test_training_lines_draw_operations_by_weight_and_may_nest_nothing():
    """Test items are drawn alike whatever training lines are."""
    plain, _ = listops.data(listops.parse("add_10,max_10"), 2000, 30, 4)
    made, items = listops.data(listops.parse("add_10:4,max_10", flat=0.5), 2000, 30, 4)
    assert items == listops.data(listops.parse("add_10,max_10"), 2000, 30, 4)[1]
    lines = [line.tolist() for line in np.split(made.train, made.starts[1:])]
    asked = [line[:line.index(listops.EQUALS)] for line in lines]
    names = [listops.VOCAB.tokens[token] for line in asked for token in line]
    assert 3.2 < names.count("add_10") / names.count("max_10") < 4.8
    nested = [line.count(listops.OPEN) > 1 for line in asked]
    was = [line.tolist()[:line.tolist().index(listops.EQUALS)].count(listops.OPEN) > 1 for line in np.split(plain.train, plain.starts[1:])]
    assert 0.4 < sum(nested) / sum(was) < 0.6


@pytest.mark.parametrize("text", ["add_10:0", "add_10:", "add_10:x", "add_10:1:2", "add_10:-1", "sum_10", ""])
def test_operations_that_cannot_be_drawn(text):
    if text == "add_10:":
        assert listops.parse(text).weights == ()
    else:
        with pytest.raises(DataError):
            listops.parse(text)
