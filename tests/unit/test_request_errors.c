/* test_request_errors.c: bodies of generating requests that are refused: status, field, code and what the message says. The
 * models are those of served.h; bodies are written with ' for ". */
#include "served.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct refusal {
    const char *body, *param, *message; /* message: all of it */
    const char *code;
    unsigned status; /* 0: 400 */
} refusal;

static void refuses_within(request_kind kind, const char *body, const request_limits *limits, const refusal *expected)
{
    generation_request out;
    api_error error;
    if (served_read(kind, body, &served_models, limits, &out, &error)) fail_msg("%s: accepted", body);
    if (strcmp(error.message, expected->message) || strcmp(error.param, expected->param) ||
        error.status != (expected->status ? expected->status : 400))
        fail_msg("%s: %u %s: %s", body, error.status, error.param, error.message);
    if (expected->code)
        assert_string_equal(error.code, expected->code);
    else
        assert_null(error.code);
    /* Nothing is left to release. */
    assert_true(!out.model && !out.prompts && !out.stop && !out.model_name && !out.unknown_field);
    assert_true(!out.sampling.bias && !out.track);
}

/* `format` has one %s, for the body of the refusal. */
static void refuse(request_kind kind, const char *format, const refusal *refusals, size_t count)
{
    request_limits limits = request_limits_defaults();
    for (size_t i = 0; i < count; i++) {
        char body[1024];
        (void)snprintf(body, sizeof body, format, refusals[i].body);
        refuses_within(kind, body, &limits, &refusals[i]);
    }
}

#define REFUSE(kind, format, table) refuse(kind, format, table, sizeof(table) / sizeof(table)[0])

/* ---- The model --------------------------------------------------------------------------------------------------- */

#define SERVED ": this server has chars, pair, a@b, flat, bare"

static const refusal of_model[] = {
    {"", "model", "model is missing: expected the name of a model, which /v1/models lists", NULL, 0},
    {"'model': null", "model", "model is missing: expected the name of a model, which /v1/models lists", NULL, 0},
    {"'model': 3", "model", "model is 3: expected a string", NULL, 0},
    {"'model': 'chars\\u0000'", "model", "model holds U+0000: expected the name of a model", NULL, 0},
    {"'model': 'char'", "model", "the model \"char\" does not exist" SERVED, "model_not_found", 404},
    {"'model': ''", "model", "the model \"\" does not exist" SERVED, "model_not_found", 404},
    {"'model': 'Chars'", "model", "the model \"Chars\" does not exist" SERVED, "model_not_found", 404},
    {"'model': 'a'", "model", "the model \"a\" does not exist" SERVED, "model_not_found", 404},
    {"'model': 'chars@5@5'", "model", "the model \"chars@5@5\" does not exist" SERVED, "model_not_found", 404},
    {"'model': '@5'", "model", "the model \"@5\" does not exist" SERVED, "model_not_found", 404},
    {"'model': 'a\\nb'", "model", "the model \"a\\x0ab\" does not exist" SERVED, "model_not_found", 404},
    {"'model': '../chars'", "model", "the model \"../chars\" does not exist" SERVED, "model_not_found", 404},
};

static void models_that_are_not_there(void **state)
{
    (void)state;
    REFUSE(REQUEST_COMPLETION, "{%s}", of_model);
}

/* ---- T ----------------------------------------------------------------------------------------------------------- */

#define NUMBER "a number from 1 to 65535"
#define ALLOWED "; this server allows 256"
#define FIELDS "steps, prompt_steps, draft_steps, exit, step_scale, step_rule, momentum, noise, history, solver, choose, trace"

static const refusal of_depth[] = {
    {"'chars@'", "model", "model names a depth of chars: steps \"\": expected " NUMBER ALLOWED, NULL, 0},
    {"'chars@0'", "model", "model names a depth of chars: steps \"0\": expected " NUMBER ALLOWED, NULL, 0},
    {"'chars@-1'", "model", "model names a depth of chars: steps \"-1\": expected " NUMBER ALLOWED, NULL, 0},
    {"'chars@3x2'", "model", "model names a depth of chars: steps \"3x2\": expected " NUMBER ALLOWED, NULL, 0},
    {"'chars@70000'", "model", "model names a depth of chars: steps \"70000\": expected " NUMBER ALLOWED, NULL, 0},
    {"'chars@0000000000000005'", "model", "model names a depth of chars in 16 characters: expected at most 15", NULL, 0},
    {"'chars@257'", "model", "model asks for 257 steps, more than the 256 this server allows", NULL, 0},
    {"'pair@3x257'", "model", "model asks for 257 steps, more than the 256 this server allows", NULL, 0},
    {"'flat@1'", "model", "model names a depth of flat: steps \"1\": expected \"none\": no sub-layer of this model has a T",
     NULL, 0},
    {"'chars@0', 'descent': {'steps': 3}", "model", "model names a depth of chars: steps \"0\": expected " NUMBER ALLOWED, NULL,
     0},
    {"'flat', 'descent': {'steps': 1}", "descent.steps",
     "descent.steps is set, but no sub-layer of model flat has a T: it runs once", NULL, 0},
    {"'flat', 'descent': {'prompt_steps': 1}", "descent.prompt_steps",
     "descent.prompt_steps is set, but no sub-layer of model flat has a T: it runs once", NULL, 0},
    {"'flat', 'descent': {'history': 'last'}", "descent.history",
     "descent.history is last, which is for NRGPT; model flat is gpt: expected own", NULL, 0},
    {"'pair', 'descent': {'history': 'latest'}", "descent.history",
     "descent.history is latest, which is for NRGPT; model pair is cem: expected own", NULL, 0},
    {"'pair', 'descent': {'prompt_steps': 9}", "descent.prompt_steps",
     "descent.prompt_steps is 9, which is for NRGPT; model pair is cem: expected 3x2", NULL, 0},
    {"'pair', 'descent': {'steps': 4, 'prompt_steps': {'mlp': 4}}", "descent.prompt_steps",
     "descent.prompt_steps is an object, which is for NRGPT; model pair is cem: expected 4", NULL, 0},
    {"'pair', 'descent': {'steps': {'attention': 257}}", "descent.steps.attention",
     "descent.steps.attention is 257: expected an integer from 1 to 256", NULL, 0},
    {"'pair', 'descent': {'steps': {'mlp': '2'}}", "descent.steps.mlp",
     "descent.steps.mlp is a string: expected an integer from 1 to 256", NULL, 0},
    {"'pair', 'descent': {'steps': {'block': 1}}", "descent.steps.block",
     "descent.steps.block is no field: expected one of attention, mlp", NULL, 0},
    {"'a@b', 'descent': {'steps': {'attention': 1}}", "descent.steps.attention",
     "descent.steps.attention is no field: expected one of mlp", NULL, 0},
    {"'chars', 'descent': {'steps': {'block': 1}}", "descent.steps",
     "descent.steps is an object: expected an integer from 1 to 256", NULL, 0},
    {"'chars', 'descent': {'steps': 0}", "descent.steps", "descent.steps is 0: expected an integer from 1 to 256", NULL, 0},
    {"'chars', 'descent': {'steps': 257}", "descent.steps", "descent.steps is 257: expected an integer from 1 to 256", NULL, 0},
    {"'chars', 'descent': {'steps': 1.5}", "descent.steps", "descent.steps is 1.5: expected an integer from 1 to 256", NULL, 0},
    {"'chars', 'descent': {'steps': '5'}", "descent.steps", "descent.steps is a string: expected an integer from 1 to 256",
     NULL, 0},
    {"'chars', 'descent': {'steps': [1]}", "descent.steps", "descent.steps is a list: expected an integer from 1 to 256", NULL,
     0},
    {"'chars', 'descent': 12", "descent", "descent is 12: expected an object", NULL, 0},
    {"'chars', 'descent': {'step': 3}", "descent.step", "descent.step is no field: expected one of " FIELDS, NULL, 0},
    {"'chars', 'descent': {'trace': 1}", "descent.trace", "descent.trace is 1: expected true or false", NULL, 0},
    {"'pair', 'descent': {'draft_steps': 1}", "descent.draft_steps",
     "descent.draft_steps is 1, but of tokens of model pair (cem) nothing is drafted, as of NRGPT's: expected 0 or null", NULL,
     0},
    {"'flat', 'descent': {'draft_steps': 1}", "descent.draft_steps",
     "descent.draft_steps is 1, but of tokens of model flat (gpt) nothing is drafted, as of NRGPT's: expected 0 or null", NULL,
     0},
    {"'chars', 'descent': {'step_scale': 0}", "descent.step_scale",
     "descent.step_scale is 0: expected a number above 0 and at most 4, or a list of such", NULL, 0},
    {"'chars', 'descent': {'step_scale': 4.5}", "descent.step_scale",
     "descent.step_scale is 4.5: expected a number above 0 and at most 4, or a list of such", NULL, 0},
    {"'chars', 'descent': {'step_scale': 'x'}", "descent.step_scale",
     "descent.step_scale is a string: expected a number above 0 and at most 4, or a list of such", NULL, 0},
    {"'chars', 'descent': {'step_scale': []}", "descent.step_scale",
     "descent.step_scale has 0 numbers: expected 1 to 64, each a number above 0 and at most 4", NULL, 0},
    {"'chars', 'descent': {'step_scale': [1, 2, 0]}", "descent.step_scale",
     "descent.step_scale has 0 at step 2: expected a number above 0 and at most 4", NULL, 0},
    {"'chars', 'descent': {'step_scale': [1, null]}", "descent.step_scale",
     "descent.step_scale has null at step 1: expected a number above 0 and at most 4", NULL, 0},
    {"'chars', 'descent': {'momentum': '0'}", "descent.momentum", "descent.momentum is a string: expected a number from 0 to 1",
     NULL, 0},
    {"'chars', 'descent': {'momentum': -0.5}", "descent.momentum", "descent.momentum is -0.5: expected a number from 0 to 1",
     NULL, 0},
    {"'chars', 'descent': {'momentum': 1}", "descent.momentum", "descent.momentum is 1: expected less than 1", NULL, 0},
    {"'flat', 'descent': {'momentum': 0.5}", "descent.momentum",
     "descent.momentum is set, but model flat does not descend an energy: expected 0", NULL, 0},
    {"'pair', 'descent': {'step_rule': 'angular'}", "descent.step_rule",
     "descent.step_rule is angular, which is for NRGPT; model pair is cem: expected plain", NULL, 0},
    {"'chars', 'descent': {'noise': {'sigma': -1}}", "descent.noise.sigma",
     "descent.noise.sigma is -1: expected a number from 0 to 1e+06", NULL, 0},
    {"'chars', 'descent': {'noise': {'seed': 1.5}}", "descent.noise.seed",
     "descent.noise.seed is 1.5: expected a signed 64-bit integer", NULL, 0},
    {"'chars', 'descent': {'noise': {'schedule': 'slow'}}", "descent.noise.schedule",
     "descent.noise.schedule is \"slow\": expected one of fixed, decay", NULL, 0},
    {"'chars', 'descent': {'noise': 0.1}", "descent.noise", "descent.noise is 0.10000000000000001: expected an object", NULL,
     0},
    {"'flat', 'descent': {'noise': {'sigma': 0.5}}", "descent.noise",
     "descent.noise is set, but model flat does not descend an energy: expected a sigma of 0", NULL, 0},
    {"'pair', 'descent': {'solver': {'method': 'anderson'}}", "descent.solver.method",
     "descent.solver.method is anderson, which is for NRGPT; model pair is cem: expected plain", NULL, 0},
    {"'chars', 'descent': {'solver': {'method': 'newton'}}", "descent.solver.method",
     "descent.solver.method is \"newton\": expected one of plain, anderson", NULL, 0},
    {"'chars', 'descent': {'solver': {'nstep': 17}}", "descent.solver.nstep",
     "descent.solver.nstep is 17: expected an integer from 1 to 16", NULL, 0},
    {"'chars', 'descent': {'solver': {'residual': -1}}", "descent.solver.residual",
     "descent.solver.residual is -1: expected a number from 0 to 1e+06", NULL, 0},
    {"'chars', 'descent': {'solver': {'method': 'anderson'}, 'momentum': 0.5}", "descent.solver.method",
     "descent.solver.method is anderson and descent.momentum is set: expected one or the other", NULL, 0},
    {"'chars', 'descent': {'solver': {'method': 'anderson'}, 'exit': {'criterion': 'state'}}", "descent.solver.method",
     "descent.solver.method is anderson and descent.exit is set: expected one or the other", NULL, 0},
    {"'flat', 'descent': {'step_scale': [1, 2]}", "descent.step_scale",
     "descent.step_scale is set, but model flat does not descend an energy: expected 1", NULL, 0},
    {"'chars', 'reasoning_effort': 'extreme'", "reasoning_effort",
     "reasoning_effort is \"extreme\": expected none, minimal, low, medium, high, xhigh or max", NULL, 0},
    {"'chars', 'reasoning_effort': 3", "reasoning_effort", "reasoning_effort is 3: expected a string", NULL, 0},
    {"'flat', 'reasoning_effort': 'most'", "reasoning_effort",
     "reasoning_effort is \"most\": expected none, minimal, low, medium, high, xhigh or max", NULL, 0},
};

static void depths(void **state)
{
    (void)state;
    REFUSE(REQUEST_COMPLETION, "{'prompt': [1], 'model': %s}", of_depth);
}

#define NOT_YET "unsupported_parameter"
#define READS ", and descent.history is own, which reads every earlier token at each of the steps: expected at least "

static const refusal of_knobs[] = {
    {"'prompt_steps': 3", "descent.prompt_steps",
     "descent.prompt_steps is 3, fewer than descent.steps, 5" READS "5, or the history latest or last", NULL, 0},
    {"'steps': 9, 'prompt_steps': 5, 'history': 'own'", "descent.prompt_steps",
     "descent.prompt_steps is 5, fewer than descent.steps, 9" READS "9, or the history latest or last", NULL, 0},
    {"'prompt_steps': 257, 'history': 'last'", "descent.prompt_steps",
     "descent.prompt_steps is 257: expected an integer from 1 to 256", NULL, 0},
    {"'solver': {'method': 'anderson'}, 'history': 'last'", "descent.solver.method",
     "descent.solver.method is anderson and descent.history is set: expected one or the other", NULL, 0},
    {"'solver': {'method': 'anderson'}, 'prompt_steps': 9", "descent.solver.method",
     "descent.solver.method is anderson and descent.prompt_steps is set: expected one or the other", NULL, 0},
    {"'prompt_steps': 0", "descent.prompt_steps", "descent.prompt_steps is 0: expected an integer from 1 to 256", NULL, 0},
    {"'draft_steps': 5", "descent.draft_steps", "descent.draft_steps is 5 and steps is 5: expected fewer than steps, or 0",
     NULL, 0},
    {"'steps': 3, 'draft_steps': 4", "descent.draft_steps",
     "descent.draft_steps is 4 and steps is 3: expected fewer than steps, or 0", NULL, 0},
    {"'steps': 1, 'draft_steps': 1", "descent.draft_steps",
     "descent.draft_steps is 1 and steps is 1: expected fewer than steps, or 0", NULL, 0},
    {"'draft_steps': -1", "descent.draft_steps", "descent.draft_steps is -1: expected an integer from 0 to 65535", NULL, 0},
    {"'draft_steps': true", "descent.draft_steps", "descent.draft_steps is true: expected an integer from 0 to 65535", NULL, 0},
    {"'step_rule': 'round'", "descent.step_rule", "descent.step_rule is \"round\": expected one of plain, angular", NULL, 0},
    {"'step_rule': 1", "descent.step_rule", "descent.step_rule is 1: expected a string", NULL, 0},
    {"'history': 'first'", "descent.history", "descent.history is \"first\": expected one of own, latest, last", NULL, 0},
    {"'history': 1", "descent.history", "descent.history is 1: expected a string", NULL, 0},
    {"'history': 'own\\u0000'", "descent.history", "descent.history is \"own\\x00\": expected one of own, latest, last", NULL,
     0},
    {"'exit': {'criterion': 'x'}", "descent.exit.criterion",
     "descent.exit.criterion is \"x\": expected one of none, state, cosine, energy, entropy, kl, argmax", NULL, 0},
    {"'exit': {'threshold': -0.5}", "descent.exit.threshold",
     "descent.exit.threshold is -0.5: expected a number from 0 to 1e+06", NULL, 0},
    {"'exit': {'threshold': 1e39}", "descent.exit.threshold",
     "descent.exit.threshold is 9.9999999999999994e+38: expected a number from 0 to 1e+06", NULL, 0},
    {"'exit': {'min_steps': 0}", "descent.exit.min_steps", "descent.exit.min_steps is 0: expected an integer from 1 to 65535",
     NULL, 0},
    {"'exit': {'check_every': 65536}", "descent.exit.check_every",
     "descent.exit.check_every is 65536: expected an integer from 1 to 65535", NULL, 0},
    {"'exit': {'in_prompt': 0}", "descent.exit.in_prompt", "descent.exit.in_prompt is 0: expected true or false", NULL, 0},
    {"'exit': {'tolerance': 1}", "descent.exit.tolerance",
     "descent.exit.tolerance is no field: expected one of criterion, threshold, min_steps, check_every, in_prompt", NULL, 0},
    {"'exit': 'none'", "descent.exit", "descent.exit is a string: expected an object", NULL, 0},
    {"'noise': {'x': null}", "descent.noise.x", "descent.noise.x is no field: expected one of sigma, seed, schedule", NULL, 0},
    {"'choose': {'n': 0}", "descent.choose.n", "descent.choose.n is 0: expected an integer from 1 to 128", NULL, 0},
    {"'choose': {'n': 129}", "descent.choose.n", "descent.choose.n is 129: expected an integer from 1 to 128", NULL, 0},
    {"'choose': {'n': '8'}", "descent.choose.n", "descent.choose.n is a string: expected an integer from 1 to 128", NULL, 0},
    {"'choose': {'by': 'luck'}", "descent.choose.by",
     "descent.choose.by is \"luck\": expected one of logprob, energy, energy_gap, vote", NULL, 0},
    {"'choose': {'by': 1}", "descent.choose.by", "descent.choose.by is 1: expected a string", NULL, 0},
    {"'choose': {'k': 8}", "descent.choose.k", "descent.choose.k is no field: expected one of n, by, candidates", NULL, 0},
    {"'choose': 8", "descent.choose", "descent.choose is 8: expected an object", NULL, 0},
};

static void knobs_of_a_descent(void **state)
{
    (void)state;
    REFUSE(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 'a', 'descent': {%s}}", of_knobs);
}

/* ---- Sampling and the answer ------------------------------------------------------------------------------------- */

static const refusal of_fields[] = {
    {"'temperature': -0.5", "temperature", "temperature is -0.5: expected a number from 0 to 100", NULL, 0},
    {"'temperature': 101", "temperature", "temperature is 101: expected a number from 0 to 100", NULL, 0},
    {"'temperature': 'hot'", "temperature", "temperature is a string: expected a number from 0 to 100", NULL, 0},
    {"'top_p': 0", "top_p", "top_p is 0: expected a number above 0 and at most 1", NULL, 0},
    {"'top_p': 1.5", "top_p", "top_p is 1.5: expected a number above 0 and at most 1", NULL, 0},
    {"'top_k': -2", "top_k", "top_k is -2: expected an integer from -1 to 2147483647", NULL, 0},
    {"'min_p': 2", "min_p", "min_p is 2: expected a number from 0 to 1", NULL, 0},
    {"'typical_p': 0", "typical_p", "typical_p is 0: expected a number above 0 and at most 1", NULL, 0},
    {"'repetition_penalty': 0", "repetition_penalty", "repetition_penalty is 0: expected a number above 0 and at most 100",
     NULL, 0},
    {"'presence_penalty': 3", "presence_penalty", "presence_penalty is 3: expected a number from -2 to 2", NULL, 0},
    {"'frequency_penalty': -3", "frequency_penalty", "frequency_penalty is -3: expected a number from -2 to 2", NULL, 0},
    {"'ignore_eos': 'yes'", "ignore_eos", "ignore_eos is a string: expected true or false", NULL, 0},
    {"'min_tokens': -1", "min_tokens", "min_tokens is -1: expected an integer from 0 to 2147483647", NULL, 0},
    {"'seed': 0.5", "seed", "seed is 0.5: expected a signed 64-bit integer", NULL, 0},
    {"'seed': 1e19", "seed", "seed is 1e+19: expected a signed 64-bit integer", NULL, 0},
    {"'logit_bias': [1]", "logit_bias", "logit_bias is a list: expected an object", NULL, 0},
    {"'logit_bias': {'1': 101}", "logit_bias.1", "logit_bias.1 is 101: expected a number from -100 to 100", NULL, 0},
    {"'logit_bias': {'1': '5'}", "logit_bias.1", "logit_bias.1 is a string: expected a number from -100 to 100", NULL, 0},
    {"'max_tokens': -1", "max_tokens", "max_tokens is -1: expected an integer of at least 0", NULL, 0},
    {"'max_tokens': 1e300", "max_tokens", "max_tokens is 1.0000000000000001e+300: expected an integer of at least 0", NULL, 0},
    {"'n': 0", "n", "n is 0: expected an integer from 1 to 128", NULL, 0},
    {"'n': 129", "n", "n is 129: expected an integer from 1 to 128", NULL, 0},
    {"'n': 3, 'best_of': 2", "best_of", "best_of is 2: expected an integer from 3 to 128", NULL, 0},
    {"'best_of': 129", "best_of", "best_of is 129: expected an integer from 1 to 128", NULL, 0},
    {"'best_of': 2, 'stream': true", "best_of", "best_of is 2 with stream: expected no more than n, 1, or no stream", NULL, 0},
    {"'echo': 1", "echo", "echo is 1: expected true or false", NULL, 0},
    {"'logprobs': 21", "logprobs", "logprobs is 21: expected an integer from 0 to 20", NULL, 0},
    {"'logprobs': true", "logprobs", "logprobs is true: expected an integer from 0 to 20", NULL, 0},
    {"'stop': ''", "stop", "stop has 0 bytes: expected 1 to 256", NULL, 0},
    {"'stop': ['a', '']", "stop[1]", "stop[1] has 0 bytes: expected 1 to 256", NULL, 0},
    {"'stop': ['a', null]", "stop[1]", "stop[1] is null: expected a string or a list of strings", NULL, 0},
    {"'stop': 5", "stop", "stop is 5: expected a string or a list of strings", NULL, 0},
    {"'stop': {'a': 1}", "stop", "stop is an object: expected a string or a list of strings", NULL, 0},
    {"'stream': 'true'", "stream", "stream is a string: expected true or false", NULL, 0},
    {"'stream_options': true", "stream_options", "stream_options is true: expected an object", NULL, 0},
    {"'stream_options': {'include_usage': 1}", "stream_options.include_usage",
     "stream_options.include_usage is 1: expected true or false", NULL, 0},
    {"'parse_special': 0", "parse_special", "parse_special is 0: expected true or false", NULL, 0},
    {"'user': 5", "user", "user is 5: expected a string", NULL, 0},
    {"'metadata': []", "metadata", "metadata is a list: expected an object", NULL, 0},
    {"'suffix': 'x'", "suffix", "suffix is not supported: text is only continued at its end", NOT_YET, 0},
    {"'tools': [{}]", "tools", "tools is not supported: this server calls no tools, expected []", NOT_YET, 0},
    {"'tools': {}", "tools", "tools is an object: expected a list", NULL, 0},
    {"'functions': [{}]", "functions", "functions is not supported: this server calls no tools, expected []", NOT_YET, 0},
    {"'tool_choice': 'required'", "tool_choice",
     "tool_choice is not supported: this server calls no tools, expected none or auto", NOT_YET, 0},
    {"'tool_choice': {'type': 'function'}", "tool_choice",
     "tool_choice is not supported: this server calls no tools, expected none or auto", NOT_YET, 0},
    {"'response_format': {'type': 'json_object'}", "response_format",
     "response_format is not supported: answers are plain text, expected {\"type\": \"text\"}", NOT_YET, 0},
    {"'response_format': {}", "response_format",
     "response_format is not supported: answers are plain text, expected {\"type\": \"text\"}", NOT_YET, 0},
    {"'modalities': ['text', 'audio']", "modalities",
     "modalities is not supported: this server reads and writes text, expected [\"text\"]", NOT_YET, 0},
    {"'audio': {}", "audio", "audio is not supported: this server reads and writes text", NOT_YET, 0},
};

static void single_fields(void **state)
{
    (void)state;
    REFUSE(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 'a', %s}", of_fields);
}

/* Ids of logit_bias: only what is a token's id, spelled as numbers are. */
static void biased_tokens(void **state)
{
    (void)state;
    static const char *const keys[] = {"100", "-1", "01", "+1", " 1", "1 ", "1.0", "", "a", "99999999999999999999", "0x1"};
    request_limits limits = request_limits_defaults();
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char body[160];
        (void)snprintf(body, sizeof body, "{'model': 'chars', 'prompt': 'a', 'logit_bias': {'99': 1, '%s': 1}}", keys[i]);
        refuses_within(REQUEST_COMPLETION, body, &limits,
                       &(refusal){.param = "logit_bias",
                                  .message = "logit_bias has a key that is no token: expected the ids 0 to 99 as strings"});
    }
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

#define SHAPES "expected a string, a list of strings, a list of tokens or a list of lists of tokens"
#define NO_BOS " is empty, and model chars has no BOS token to begin with: expected some text"

static const refusal of_prompt[] = {
    {"'chars'", "prompt", "prompt" NO_BOS, NULL, 0},
    {"'chars', 'prompt': null", "prompt", "prompt" NO_BOS, NULL, 0},
    {"'chars', 'prompt': ''", "prompt", "prompt" NO_BOS, NULL, 0},
    {"'chars', 'prompt': ['a', '']", "prompt[1]", "prompt[1]" NO_BOS, NULL, 0},
    {"'chars', 'prompt': []", "prompt", "prompt is an empty list: expected tokens", NULL, 0},
    {"'chars', 'prompt': [[]]", "prompt", "prompt is an empty list: expected tokens", NULL, 0},
    {"'chars', 'prompt': [[1], []]", "prompt[1]", "prompt[1] is an empty list: expected tokens", NULL, 0},
    {"'chars', 'prompt': 5", "prompt", "prompt is 5: " SHAPES, NULL, 0},
    {"'chars', 'prompt': {}", "prompt", "prompt is an object: " SHAPES, NULL, 0},
    {"'chars', 'prompt': true", "prompt", "prompt is true: " SHAPES, NULL, 0},
    {"'chars', 'prompt': [100]", "prompt", "prompt has 100 at 0: expected tokens, integers from 0 to 99", NULL, 0},
    {"'chars', 'prompt': [1, -1]", "prompt", "prompt has -1 at 1: expected tokens, integers from 0 to 99", NULL, 0},
    {"'chars', 'prompt': [1, 'secret']", "prompt", "prompt has a string at 1: expected tokens, integers from 0 to 99", NULL, 0},
    {"'chars', 'prompt': [null]", "prompt", "prompt has null at 0: expected tokens, integers from 0 to 99", NULL, 0},
    {"'chars', 'prompt': [[1], [1, 1.5]]", "prompt[1]", "prompt[1] has 1.5 at 1: expected tokens, integers from 0 to 99", NULL,
     0},
    {"'chars', 'prompt': ['a', 1]", "prompt[1]", "prompt[1] is 1: expected a string, as the one before", NULL, 0},
    {"'chars', 'prompt': [[1], 'a']", "prompt[1]", "prompt[1] is a string: expected a list of tokens, as the one before", NULL,
     0},
    {"'bare', 'prompt': 'secret'", "prompt", "prompt is a string, but model bare has no tokenizer: expected a list of tokens",
     NULL, 0},
    {"'bare', 'prompt': ''", "prompt", "prompt is empty, and model bare has no BOS token to begin with: expected some text",
     NULL, 0},
};

static void prompts(void **state)
{
    (void)state;
    REFUSE(REQUEST_COMPLETION, "{'model': %s}", of_prompt);
}

static const refusal of_spelling[] = {
    {"'chars', 'prompt': 'secret \xc3\xb6 secret'", "prompt",
     "prompt cannot be read by chars: the vocabulary has no character \"\xc3\xb6\" (U+00F6), which stands at byte 7 of the "
     "text",
     NULL, 0},
    {"'chars', 'prompt': ['a', 'a\\u0000']", "prompt[1]",
     "prompt[1] cannot be read by chars: the vocabulary has no character \"\\x00\" (U+0000), which stands at byte 1 of the "
     "text",
     NULL, 0},
    {"'flat', 'prompt': 'one,three,two'", "prompt",
     "prompt cannot be read by flat: the vocabulary has no word \"three\", which stands at byte 4 of the text", NULL, 0},
};

/* What quotes the prompt says so, for the log. */
static void what_no_vocabulary_spells(void **state)
{
    (void)state;
    REFUSE(REQUEST_COMPLETION, "{'model': %s}", of_spelling);
    generation_request out;
    api_error error;
    request_limits limits = request_limits_defaults();
    assert_false(
        served_read(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': '\xc3\xb6'}", &served_models, &limits, &out, &error));
    assert_true(error.quotes_prompt);
    assert_false(served_read(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 5}", &served_models, &limits, &out, &error));
    assert_false(error.quotes_prompt);
}

/* The tokenizer of a@b knows 259 tokens, the model 200. */
static void tokens_without_embedding(void **state)
{
    (void)state;
    request_limits limits = request_limits_defaults();
    refuses_within(REQUEST_COMPLETION, "{'model': 'a@b', 'prompt': 'a\\u0400'}", &limits,
                   &(refusal){.param = "prompt",
                              .message = "prompt has token 211 at 1, for which model a@b of 200 tokens has no embedding"});
}

/* ---- Limits ------------------------------------------------------------------------------------------------------ */

/* "[v, v, ...]" of `count` values. */
static const char *list_of(size_t count, const char *value)
{
    static char text[65536];
    size_t at = (size_t)sprintf(text, "[%s", value);
    for (size_t i = 1; i < count; i++) at += (size_t)sprintf(text + at, ",%s", value);
    (void)sprintf(text + at, "]");
    return text;
}

static void refuses_list(request_kind kind, const char *format, size_t count, const char *value, const request_limits *limits,
                         const char *param, const char *code, const char *message)
{
    char body[65536];
    (void)snprintf(body, sizeof body, format, list_of(count, value));
    refuses_within(kind, body, limits, &(refusal){.param = param, .code = code, .message = message});
}

static void accepts_list(const char *format, size_t count, const char *value, const request_limits *limits)
{
    char body[65536];
    generation_request out;
    api_error error;
    (void)snprintf(body, sizeof body, format, list_of(count, value));
    if (!served_read(REQUEST_COMPLETION, body, &served_models, limits, &out, &error)) fail_msg("%s", error.message);
    request_release(&out);
}

static void prompts_too_long(void **state)
{
    (void)state;
    const char *code = "context_length_exceeded", *one = "{'model': 'chars', 'prompt': %s}";
    request_limits limits = request_limits_defaults();
    accepts_list(one, 64, "1", &limits);
    refuses_list(REQUEST_COMPLETION, one, 65, "1", &limits, "prompt", code,
                 "prompt has 65 tokens, more than the 64 of the context of chars");
    refuses_list(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': [[1], %s]}", 65, "1", &limits, "prompt[1]", code,
                 "prompt[1] has 65 tokens, more than the 64 of the context of chars");
    limits.prompt_tokens = 10;
    accepts_list(one, 10, "1", &limits);
    refuses_list(REQUEST_COMPLETION, one, 11, "1", &limits, "prompt", code,
                 "prompt has 11 tokens, more than the 10 this server allows");
    limits.prompt_tokens = 0;

    char body[256], text[70];
    memset(text, 'x', sizeof text);
    (void)snprintf(body, sizeof body, "{'model': 'pair', 'prompt': '%.64s'}", text); /* and BOS */
    refuses_within(REQUEST_COMPLETION, body, &limits,
                   &(refusal){.param = "prompt",
                              .code = code,
                              .message = "prompt has 65 tokens, more than the 64 of the context of pair"});
    (void)snprintf(body, sizeof body, "{'model': 'chars', 'messages': [{'role': 'user', 'content': '%.70s'}]}", text);
    refuses_within(REQUEST_CHAT, body, &limits,
                   &(refusal){.param = "messages",
                              .code = code,
                              .message = "messages has 88 tokens, more than the 64 of the context of chars"});
}

/* Texts far beyond the context are refused unread. */
static void texts_too_long(void **state)
{
    (void)state;
    enum { MOST = 64 * 256 + 255 };
    static char body[MOST + 256], text[MOST + 2];
    const char *code = "context_length_exceeded";
    request_limits limits = request_limits_defaults();
    memset(text, 'x', MOST + 1);
    (void)snprintf(body, sizeof body, "{'model': 'chars', 'prompt': '%.*s'}", MOST, text);
    refuses_within(REQUEST_COMPLETION, body, &limits,
                   &(refusal){.param = "prompt",
                              .code = code,
                              .message = "prompt has 16639 tokens, more than the 64 of the context of chars"});
    (void)snprintf(body, sizeof body, "{'model': 'chars', 'prompt': '%s'}", text);
    refuses_within(
        REQUEST_COMPLETION, body, &limits,
        &(refusal){.param = "prompt",
                   .code = code,
                   .message = "prompt has 16640 bytes, more than 256 for each of the 64 tokens of the context of chars"});
    (void)snprintf(body, sizeof body,
                   "{'model': 'chars', 'messages': [{'role': 'user', 'content': 'x'}, {'role': 'user', 'content': '%.*s'}]}",
                   MOST, text);
    refuses_within(
        REQUEST_CHAT, body, &limits,
        &(refusal){.param = "messages",
                   .code = code,
                   .message = "messages has 16640 bytes, more than 256 for each of the 64 tokens of the context of chars"});
}

static void too_many_sequences(void **state)
{
    (void)state;
    request_limits limits = request_limits_defaults();
    accepts_list("{'model': 'chars', 'prompt': %s}", 128, "'a'", &limits);
    accepts_list("{'model': 'chars', 'n': 2, 'best_of': 4, 'prompt': %s}", 32, "[1]", &limits);
    refuses_list(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': %s}", 129, "'a'", &limits, "prompt", NULL,
                 "prompt is 129 prompts of 1 choices each, 129 sequences, more than the 128 of one request");
    refuses_list(REQUEST_COMPLETION, "{'model': 'chars', 'n': 2, 'best_of': 4, 'prompt': %s}", 33, "[1]", &limits, "prompt",
                 NULL, "prompt is 33 prompts of 4 choices each, 132 sequences, more than the 128 of one request");
}

static void too_many_stop_strings(void **state)
{
    (void)state;
    request_limits limits = request_limits_defaults();
    const char *format = "{'model': 'chars', 'prompt': 'a', 'stop': %s}";
    accepts_list(format, 64, "'x'", &limits);
    refuses_list(REQUEST_COMPLETION, format, 65, "'x'", &limits, "stop", NULL, "stop has 65 strings: expected at most 64");
    refuses_list(REQUEST_COMPLETION, format, 10000, "'x'", &limits, "stop", NULL,
                 "stop has 10000 strings: expected at most 64");
    char text[300];
    memset(text, 'x', sizeof text);
    text[0] = text[257] = '\'';
    text[258] = '\0';
    accepts_list(format, 1, text, &limits);
    text[257] = 'x';
    text[258] = '\'';
    text[259] = '\0';
    refuses_list(REQUEST_COMPLETION, format, 1, text, &limits, "stop[0]", NULL, "stop[0] has 257 bytes: expected 1 to 256");
}

static void too_many_biases(void **state)
{
    (void)state;
    request_limits limits = request_limits_defaults();
    limits.logit_bias = 2;
    refuses_within(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 'a', 'logit_bias': {'0': 1, '1': 1, '2': 1}}", &limits,
                   &(refusal){.param = "logit_bias", .message = "logit_bias has 3 entries: expected at most 2"});
}

static void too_deep(void **state)
{
    (void)state;
    request_limits limits = request_limits_defaults();
    limits.json_depth = 2;
    refuses_within(REQUEST_COMPLETION, "{'a': [[1]]}", &limits,
                   &(refusal){.param = "", .message = "the body nests deeper than 2 levels at line 1, column 8"});
}

/* ---- Chat -------------------------------------------------------------------------------------------------------- */

#define ROLES "expected system, developer, user, assistant or tool"
#define TEXT "expected a string or a list of text parts"

static const refusal of_messages[] = {
    {"'other': 1", "messages", "messages is missing: expected a list of messages", NULL, 0},
    {"'messages': []", "messages", "messages is an empty list: expected a list of messages", NULL, 0},
    {"'messages': 'hi'", "messages", "messages is a string: expected a list", NULL, 0},
    {"'messages': ['hi']", "messages[0]", "messages[0] is a string: expected an object", NULL, 0},
    {"'messages': [{'content': 'hi'}]", "messages[0].role", "messages[0].role is missing: " ROLES, NULL, 0},
    {"'messages': [{'role': 'user', 'content': 'hi'}, {'role': 'bot', 'content': 'hi'}]", "messages[1].role",
     "messages[1].role is \"bot\": " ROLES, NULL, 0},
    {"'messages': [{'role': 5, 'content': 'hi'}]", "messages[0].role", "messages[0].role is 5: expected a string", NULL, 0},
    {"'messages': [{'role': 'user'}]", "messages[0].content", "messages[0].content is null: " TEXT, NULL, 0},
    {"'messages': [{'role': 'user', 'content': null}]", "messages[0].content", "messages[0].content is null: " TEXT, NULL, 0},
    {"'messages': [{'role': 'user', 'content': 5}]", "messages[0].content", "messages[0].content is 5: " TEXT, NULL, 0},
    {"'messages': [{'role': 'assistant', 'content': {}}]", "messages[0].content", "messages[0].content is an object: " TEXT,
     NULL, 0},
    {"'messages': [{'role': 'user', 'content': ['hi']}]", "messages[0].content[0]",
     "messages[0].content[0] is a string: expected an object", NULL, 0},
    {"'messages': [{'role': 'user', 'content': [{'text': 'hi'}]}]", "messages[0].content[0].type",
     "messages[0].content[0].type is missing: expected \"text\"", NULL, 0},
    {"'messages': [{'role': 'user', 'content': [{'type': 'text'}]}]", "messages[0].content[0].text",
     "messages[0].content[0].text is missing: expected a string", NULL, 0},
    {"'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 5}]}]", "messages[0].content[0].text",
     "messages[0].content[0].text is 5: expected a string", NULL, 0},
    {"'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'a'}, {'type': 'image_url'}]}]",
     "messages[0].content[1].type", "messages[0].content[1].type is \"image_url\": expected \"text\"", NOT_YET, 0},
    {"'messages': [{'role': 'user', 'content': [{'type': 'input_audio'}]}]", "messages[0].content[0].type",
     "messages[0].content[0].type is \"input_audio\": expected \"text\"", NOT_YET, 0},
    {"'messages': [{'role': 'assistant', 'tool_calls': [{}]}]", "messages[0].tool_calls",
     "messages[0].tool_calls is not supported: this server calls no tools", NOT_YET, 0},
    {"'messages': [{'role': 'assistant', 'function_call': {}}]", "messages[0].function_call",
     "messages[0].function_call is not supported: this server calls no tools", NOT_YET, 0},
    {"'messages': [{'role': 'user', 'content': '\xc3\xb6'}]", "messages",
     "messages cannot be read by chars: the vocabulary has no character \"\xc3\xb6\" (U+00F6), which stands at byte 6 of the "
     "text",
     NULL, 0},
    {"'messages': [{'role': 'user', 'content': 'hi'}], 'top_logprobs': 5", "top_logprobs",
     "top_logprobs is 5 without logprobs: expected \"logprobs\": true beside it", NULL, 0},
    {"'messages': [{'role': 'user', 'content': 'hi'}], 'logprobs': false, 'top_logprobs': 0", "top_logprobs",
     "top_logprobs is 0 without logprobs: expected \"logprobs\": true beside it", NULL, 0},
    {"'messages': [{'role': 'user', 'content': 'hi'}], 'logprobs': 5", "logprobs", "logprobs is 5: expected true or false",
     NULL, 0},
    {"'messages': [{'role': 'user', 'content': 'hi'}], 'max_tokens': -1, 'max_completion_tokens': 3", "max_tokens",
     "max_tokens is -1: expected an integer of at least 0", NULL, 0},
};

static const refusal of_templates[] = {
    {"'flat'", "messages",
     "messages cannot be written for model flat, whose file names no chat template: --chat-template names one, /v1/completions "
     "needs none",
     "chat_template_unsupported", 0},
    {"'bare'", "messages", "messages cannot be written for model bare, which has no tokenizer", "chat_template_unsupported", 0},
};

static void messages(void **state)
{
    (void)state;
    REFUSE(REQUEST_CHAT, "{'model': 'chars', %s}", of_messages);
    REFUSE(REQUEST_CHAT, "{'messages': [{'role': 'user', 'content': 'hi'}], 'model': %s}", of_templates);
}

/* ---- Trace ------------------------------------------------------------------------------------------------------- */

static const refusal of_trace[] = {
    {"'prompt': ['a', 'b']", "prompt", "prompt is 2 prompts: expected one", NULL, 0},
    {"'prompt': [[1], [2]]", "prompt", "prompt is 2 prompts: expected one", NULL, 0},
    {"'prompt': 'a', 'top': 21", "top", "top is 21: expected an integer from 0 to 20", NULL, 0},
    {"'prompt': 'a', 'track': 5", "track", "track is 5: expected a list", NULL, 0},
    {"'prompt': 'a', 'track': [1, 100]", "track", "track has 100 at 1: expected tokens, integers from 0 to 99", NULL, 0},
    {"'prompt': 'a', 'track': ['a']", "track", "track has a string at 0: expected tokens, integers from 0 to 99", NULL, 0},
    {"'prompt': 'a', 'max_tokens': 1.5", "max_tokens", "max_tokens is 1.5: expected an integer of at least 0", NULL, 0},
};

static void traces(void **state)
{
    (void)state;
    REFUSE(REQUEST_TRACE, "{'model': 'chars', %s}", of_trace);
    request_limits limits = request_limits_defaults();
    refuses_list(REQUEST_TRACE, "{'model': 'chars', 'prompt': 'a', 'track': %s}", 65, "1", &limits, "track", NULL,
                 "track has 65 tokens: expected at most 64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_that_are_not_there),
        cmocka_unit_test(depths),
        cmocka_unit_test(knobs_of_a_descent),
        cmocka_unit_test(single_fields),
        cmocka_unit_test(biased_tokens),
        cmocka_unit_test(prompts),
        cmocka_unit_test(what_no_vocabulary_spells),
        cmocka_unit_test(tokens_without_embedding),
        cmocka_unit_test(prompts_too_long),
        cmocka_unit_test(texts_too_long),
        cmocka_unit_test(too_many_sequences),
        cmocka_unit_test(too_many_stop_strings),
        cmocka_unit_test(too_many_biases),
        cmocka_unit_test(too_deep),
        cmocka_unit_test(messages),
        cmocka_unit_test(traces),
    };
    return cmocka_run_group_tests(tests, served_set_up, served_tear_down);
}
