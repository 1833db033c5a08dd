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
