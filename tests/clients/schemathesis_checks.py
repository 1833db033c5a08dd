"""A check that schemathesis loads (test_schemathesis.py), in the place of its own positive_data_acceptance: what the document
allows is accepted, or the refusal gives a reason that no document can state, since it lies in a model or in a size."""
import re

import schemathesis

REASONS = (
    r"(must be an id|expected tokens, integers|expected token ids) from 0 to \d+",  # of this vocabulary
    r"tokens?, (and )?(but )?.*context|context .* tokens",  # what the context holds
    r"the chat template \"\w+\" ",  # the roles it has a form for, in the order it has one for
    r"(best_of|min_tokens) is \d+.*: expected",  # what another field allows
    r"descent\.draft_steps is \d+(, but of tokens of model .* nothing is drafted| and steps is \d+: expected fewer)",  # its T
    r"descent\.prompt_steps is (\d+, fewer than descent\.steps|set, but texts)|and descent\.\w+ is set: expected one or",
    r"numbers: expected \d+, the width of model|start\.safetensors is not a file of states",  # what its bytes hold
    r"descent\.[\w.]+ (is|has) .*\bmodel \S+",  # a model whose descent has none of it
    r"descent\.choose is set|start\.\w+ is set, but from is",  # beside what another field asks
    r"diverged at token \d+, step \d+",  # a step as long as was asked
    r"(positions|layers|t) has \d+ at \d+: expected integers from 0 to \d+",  # what the prompt and the model have
    r"(positions|layers|t|kinds) has \d+ \w+: expected \d+ to \d+|which is there already: expected each|is no depth of",
    r"records\[\d+\] (is no record: |has )",
    r"texts\[\d+\] (has \d+ tokens: expected 2|cannot be read by)|have answers, which end with|begin anew at each",  # its words
    r"kinds? (has|is) .*: expected (block|attention)",
    r"model holds U\+0000",  # a name that no model can have
    r"is out of range: expected a signed 64-bit integer or a double|NUL byte in object key",  # JSON that nothing here holds
)


@schemathesis.check
def refused_with_reason(ctx, response, case):
    meta = case.meta
    if meta is None or not meta.generation.mode.is_positive or response.status_code != 400:
        return
    message = response.json()["error"]["message"]
    assert any(re.search(reason, message) for reason in REASONS), f"a request that the document allows is refused: {message}"
