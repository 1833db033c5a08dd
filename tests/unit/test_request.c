/* test_request.c: bodies of generating requests, and what the engine is asked for. What is refused is in
 * test_request_errors.c; the models are those of served.h. Bodies are written with ' for ". */
#include "served.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static generation_request reads(request_kind kind, const char *body)
{
    generation_request out;
    api_error error;
    request_limits limits = request_limits_defaults();
    if (!served_read(kind, body, &served_models, &limits, &out, &error)) fail_msg("%s: %s", body, error.message);
    assert_int_equal(error.status, 0);
    return out;
}

/* ---- Defaults ---------------------------------------------------------------------------------------------------- */

static void same_sampling(descent_sampling got, descent_sampling expected)
{
    assert_true(got.temperature == expected.temperature && got.top_p == expected.top_p && got.top_k == expected.top_k);
    assert_true(got.min_p == expected.min_p && got.typical_p == expected.typical_p);
    assert_true(got.repetition_penalty == expected.repetition_penalty);
    assert_true(got.presence_penalty == expected.presence_penalty && got.frequency_penalty == expected.frequency_penalty);
    assert_true(got.ignore_eos == expected.ignore_eos && got.min_tokens == expected.min_tokens);
    assert_int_equal(got.n_bias, expected.n_bias);
    assert_true(got.seed == expected.seed);
}

/* null is absent: both bodies give OpenAI's defaults. */
static void defaults(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{'model': 'chars', 'prompt': 'ab'}",
        "{'model': 'chars', 'prompt': 'ab', 'max_tokens': null, 'n': null, 'best_of': null, 'echo': null, 'logprobs': null,"
        " 'stop': null, 'seed': null, 'temperature': null, 'top_p': null, 'top_k': null, 'min_p': null, 'typical_p': null,"
        " 'presence_penalty': null, 'frequency_penalty': null, 'repetition_penalty': null, 'logit_bias': null,"
        " 'ignore_eos': null, 'min_tokens': null, 'stream': null, 'stream_options': null, 'parse_special': null,"
        " 'user': null, 'descent': null, 'reasoning_effort': null, 'suffix': null, 'tools': null, 'response_format': null}",
        "{'model': 'chars', 'prompt': 'ab', 'descent': {'steps': null, 'prompt_steps': null, 'draft_steps': null,"
        " 'exit': null, 'step_scale': null, 'step_rule': null, 'momentum': null, 'noise': null, 'history': null,"
        " 'solver': null, 'choose': null, 'trace': null}}"};
    descent_sampling sampling = descent_sampling_defaults();
    sampling.seed = SERVED_SEED;
    for (size_t i = 0; i < 3; i++) {
        generation_request r = reads(REQUEST_COMPLETION, bodies[i]);
        assert_int_equal(r.kind, REQUEST_COMPLETION);
        assert_ptr_equal(r.model, served_find(&served_models, "chars"));
        assert_string_equal(r.model_name, "chars");
        assert_true(r.n == 1 && r.best_of == 1 && r.max_tokens == 16 && r.logprobs == -1 && r.n_stop == 0);
        assert_false(r.echo || r.stream || r.include_usage || r.parse_special || r.trace || r.depth_capped);
        assert_true(r.depth.steps[0] == 5 && r.depth.steps[1] == 0 && r.motion.n_scales == 0 && r.motion.momentum == 0);
        assert_true(r.exit.criterion == DESCENT_EXIT_NONE && !r.exit_after_prompt);
        assert_int_equal(r.draft_steps, DESCENT_DRAFT_AUTO);
        assert_null(r.unknown_field);
        same_sampling(r.sampling, sampling);
        request_release(&r);
    }
}

static void everything_set(void **state)
{
    (void)state;
    generation_request r = reads(
        REQUEST_COMPLETION,
        "{'model': 'chars@7', 'prompt': 'ab', 'max_tokens': 3, 'n': 2, 'best_of': 4, 'echo': true, 'logprobs': 20,"
        " 'stop': ['\\n', 'a\\u0000b'], 'seed': -9223372036854775808, 'temperature': 0.25, 'top_p': 0.5, 'top_k': 40,"
        " 'min_p': 0.125, 'typical_p': 0.75, 'presence_penalty': -2, 'frequency_penalty': 1.5, 'repetition_penalty': 1.25,"
        " 'logit_bias': {'0': -100, '99': 2.5, '7': null}, 'ignore_eos': true, 'min_tokens': 9, 'parse_special': true,"
        " 'user': 'someone'}");
    assert_string_equal(r.model_name, "chars@7");
    assert_true(r.n == 2 && r.best_of == 4 && r.max_tokens == 3 && r.logprobs == 20 && r.echo && r.parse_special);
    assert_int_equal(r.depth.steps[0], 7);
    assert_int_equal(r.n_stop, 2);
    assert_true(r.stop[0].bytes == 1 && !memcmp(r.stop[0].text, "\n", 2));
    assert_true(r.stop[1].bytes == 3 && !memcmp(r.stop[1].text, "a\0b", 4));
    same_sampling(r.sampling, (descent_sampling){.temperature = 0.25f,
                                                 .top_p = 0.5f,
                                                 .top_k = 40,
                                                 .min_p = 0.125f,
                                                 .typical_p = 0.75f,
                                                 .presence_penalty = -2,
                                                 .frequency_penalty = 1.5f,
                                                 .repetition_penalty = 1.25f,
                                                 .ignore_eos = true,
                                                 .min_tokens = 9,
                                                 .n_bias = 2,
                                                 .seed = INT64_MIN});
    assert_true(r.sampling.bias[0].token == 0 && r.sampling.bias[0].bias == -100);
    assert_true(r.sampling.bias[1].token == 99 && r.sampling.bias[1].bias == 2.5f);
    request_release(&r);
}

/* What is above 0 but no float holds stays above 0; 0 would mean something else. */
static void smallest_numbers(void **state)
{
    (void)state;
    descent_status status;
    generation_request r = reads(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 'a', 'top_p': 1e-300, 'typical_p': 1e-300,"
                                                     " 'repetition_penalty': 1e-300, 'descent': {'step_scale': 1e-300}}");
    assert_true(r.sampling.top_p > 0 && r.sampling.typical_p > 0 && r.sampling.repetition_penalty > 0 &&
                r.motion.step_scale[0] > 0);
    assert_int_equal(descent_sampling_check(&r.sampling, 100, &status), DESCENT_OK);
    request_release(&r);
}

/* ---- T ----------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *model, *rest;
    unsigned steps[2];
    bool capped;
} depths[] = {
    {"chars", "", {5, 0}, false},
    {"chars@12", "", {12, 0}, false},
    {"chars@256", "", {256, 0}, false},
    {"chars", "'descent': {'steps': 9}", {9, 0}, false},
    {"chars", "'descent': {'steps': 256}", {256, 0}, false},
    {"chars@12", "'descent': {'steps': 9}, 'reasoning_effort': 'max'", {9, 0}, false},
    {"chars@12", "'reasoning_effort': 'high'", {12, 0}, false},
    {"chars", "'reasoning_effort': 'none'", {2, 0}, false},
    {"chars", "'reasoning_effort': 'minimal'", {2, 0}, false},
    {"chars", "'reasoning_effort': 'low'", {3, 0}, false},
    {"chars", "'reasoning_effort': 'medium'", {5, 0}, false},
    {"chars", "'reasoning_effort': 'high'", {10, 0}, false},
    {"chars", "'reasoning_effort': 'xhigh'", {15, 0}, false},
    {"chars", "'reasoning_effort': 'max'", {256, 0}, false},
    {"pair", "", {3, 2}, false},
    {"pair@7", "", {7, 7}, false},
    {"pair@7x1", "", {7, 1}, false},
    {"pair", "'descent': {'steps': 4}", {4, 4}, false},
    {"pair", "'descent': {'steps': {'attention': 8, 'mlp': 1}}", {8, 1}, false},
    {"pair@7x1", "'descent': {'steps': {'attention': 8}}", {8, 2}, false},
    {"pair@7x1", "'descent': {'steps': {'mlp': 8, 'attention': null}}", {3, 8}, false},
    {"pair@7x1", "'descent': {'steps': {}}", {3, 2}, false},
    {"pair", "'reasoning_effort': 'minimal'", {1, 1}, false},
    {"pair", "'reasoning_effort': 'low'", {2, 1}, false},
    {"pair", "'reasoning_effort': 'xhigh'", {9, 6}, false},
    {"pair", "'reasoning_effort': 'max'", {256, 256}, false},
    {"a@b", "", {0, 4}, false},
    {"a@b@9", "", {0, 9}, false},
    {"a@b", "'descent': {'steps': 3}", {0, 3}, false},
    {"a@b", "'descent': {'steps': {'mlp': 3}}", {0, 3}, false},
    {"a@b", "'reasoning_effort': 'high'", {0, 8}, false},
    {"flat", "", {0, 0}, false},
    {"flat@none", "", {0, 0}, false},
    {"flat", "'reasoning_effort': 'max'", {0, 0}, false},
    {"bare", "", {2, 0}, false},
    {"chars", "'descent': {'steps': 9, 'prompt_steps': 9}", {9, 0}, false},
    {"chars", "'descent': {'prompt_steps': 5}", {5, 0}, false},
    {"pair", "'descent': {'steps': 4, 'prompt_steps': {'attention': 4, 'mlp': 4}}", {4, 4}, false},
};

static const char *prompt_for(const char *model)
{
    return !strcmp(model, "bare") ? "[1]" : !strncmp(model, "flat", 4) ? "'one'" : "'a'";
}

static void steps_by_precedence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        char body[512];
        (void)snprintf(body, sizeof body, "{'model': '%s', 'prompt': %s%s%s}", depths[i].model, prompt_for(depths[i].model),
                       depths[i].rest[0] ? ", " : "", depths[i].rest);
        generation_request r = reads(REQUEST_COMPLETION, body);
        if (r.depth.steps[0] != depths[i].steps[0] || r.depth.steps[1] != depths[i].steps[1] ||
            r.depth_capped != depths[i].capped)
            fail_msg("%s: %u x %u", body, r.depth.steps[0], r.depth.steps[1]);
        request_release(&r);
    }
}

static const struct {
    const char *descent;
    descent_history_policy policy;
    uint32_t prompt_steps; /* 0: those of all */
    uint16_t deepest;
} histories[] = {
    {"", DESCENT_HISTORY_OWN, 0, 5},
    {"'history': null, 'prompt_steps': null", DESCENT_HISTORY_OWN, 0, 5},
    {"'history': 'own'", DESCENT_HISTORY_OWN, 0, 5},
    {"'history': 'latest'", DESCENT_HISTORY_LATEST, 0, 5},
    {"'history': 'last', 'prompt_steps': 5", DESCENT_HISTORY_LAST, 0, 5},
    {"'history': 'last', 'prompt_steps': 4", DESCENT_HISTORY_LAST, 4, 5},
    {"'history': 'latest', 'prompt_steps': 1, 'steps': 7", DESCENT_HISTORY_LATEST, 1, 7},
    {"'prompt_steps': 8", DESCENT_HISTORY_OWN, 8, 8},
    {"'prompt_steps': 256, 'steps': 256", DESCENT_HISTORY_OWN, 0, 256},
};

static void histories_as_asked(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof histories / sizeof *histories; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, "{'model': 'chars', 'prompt': 'a', 'descent': {%s}}", histories[i].descent);
        generation_request r = reads(REQUEST_COMPLETION, body);
        if (r.history.policy != histories[i].policy || r.history.prompt_steps != histories[i].prompt_steps ||
            request_deepest(&r).steps[0] != histories[i].deepest)
            fail_msg("%s: policy %d, %u prompt_steps, at most %u steps", body, (int)r.history.policy, r.history.prompt_steps,
                     request_deepest(&r).steps[0]);
        request_release(&r);
    }
}

static generation_request reads_within(uint32_t steps, const char *body)
{
    generation_request out;
    api_error error;
    request_limits limits = request_limits_defaults();
    limits.steps = steps;
    if (!served_read(REQUEST_COMPLETION, body, &served_models, &limits, &out, &error)) fail_msg("%s", error.message);
    return out;
}

/* Above --max-steps an effort uses it and says so, the default among them; an explicit T never comes here. */
static void efforts_above_the_limit(void **state)
{
    (void)state;
    generation_request r = reads_within(9, "{'model': 'chars', 'prompt': 'a', 'reasoning_effort': 'high'}");
    assert_true(r.depth.steps[0] == 9 && r.depth_capped);
    request_release(&r);
    r = reads_within(10, "{'model': 'chars', 'prompt': 'a', 'reasoning_effort': 'high'}");
    assert_true(r.depth.steps[0] == 10 && !r.depth_capped);
    request_release(&r);
    r = reads_within(8, "{'model': 'pair', 'prompt': 'a', 'reasoning_effort': 'xhigh'}");
    assert_true(r.depth.steps[0] == 8 && r.depth.steps[1] == 6 && r.depth_capped);
    request_release(&r);
    r = reads_within(4, "{'model': 'chars', 'prompt': 'a'}");
    assert_true(r.depth.steps[0] == 4 && r.depth_capped);
    request_release(&r);
    r = reads_within(4, "{'model': 'chars@3', 'prompt': 'a', 'reasoning_effort': 'xhigh'}");
    assert_true(r.depth.steps[0] == 3 && !r.depth_capped);
    request_release(&r);
}

static void early_exit(void **state)
{
    (void)state;
    generation_request r =
        reads(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 'a', 'descent': {'exit': {'criterion': 'state'}}}");
    assert_true(r.exit.criterion == DESCENT_EXIT_STATE && r.exit.threshold == 0.03f);
    assert_true(r.exit.min_steps == 1 && r.exit.check_every == 1 && r.exit.first == 0 && !r.exit_after_prompt);
    request_release(&r);
    r = reads(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 'a', 'descent': {'exit': {'criterion': 'state', 'threshold': 0,"
                                  " 'min_steps': 2.0, 'check_every': 65535, 'in_prompt': false}}}");
    assert_true(r.exit.criterion == DESCENT_EXIT_STATE && r.exit.threshold == 0.0f);
    assert_true(r.exit.min_steps == 2 && r.exit.check_every == 65535 && r.exit_after_prompt);
    request_release(&r);
    for (descent_exit_criterion c = DESCENT_EXIT_STATE; descent_exit_name(c); c++) { /* each has a threshold of its own */
        char body[160];
        (void)snprintf(body, sizeof body, "{'model': 'chars', 'prompt': 'a', 'descent': {'exit': {'criterion': '%s'}}}",
                       descent_exit_name(c));
        r = reads(REQUEST_COMPLETION, body);
        assert_true(r.exit.criterion == c && r.exit.threshold == descent_exit_default_threshold(c));
        request_release(&r);
    }
}

/* Fields of later versions take their default value. */
static void defaults_of_later_fields(void **state)
{
    (void)state;
    generation_request r =
        reads(REQUEST_COMPLETION,
              "{'model': 'chars', 'prompt': 'a', 'descent': {'step_scale': 4, 'trace': true, 'step_rule': 'plain',"
              " 'momentum': 0.0, 'history': 'own', 'draft_steps': null, 'choose': null, 'exit': {'criterion': 'none',"
              " 'threshold': 0.03, 'min_steps': 1, 'check_every': 1.0, 'in_prompt': true}, 'noise': {'sigma': 0, 'seed': 1,"
              " 'schedule': 'fixed'}, 'solver': {'method': 'plain', 'nstep': 5, 'residual': 1e-4}}}");
    assert_true(r.motion.n_scales == 1 && r.motion.step_scale[0] == 4.0f && r.trace);
    request_release(&r);
    r = reads(REQUEST_COMPLETION,
              "{'model': 'pair', 'prompt': 'a', 'descent': {'step_scale': [1, 0.5, 1e-300], 'momentum': 0.5,"
              " 'step_rule': null, 'noise': {'sigma': 0.25, 'seed': -7, 'schedule': 'decay'}}}");
    assert_true(r.motion.n_scales == 3 && r.motion.step_scale[1] == 0.5f && r.motion.step_scale[2] > 0 &&
                r.motion.momentum == 0.5f);
    assert_true(r.motion.noise.sigma == 0.25f && r.motion.noise.seed == -7 && r.motion.noise.schedule == DESCENT_NOISE_DECAY);
    request_release(&r);
    r = reads(REQUEST_COMPLETION,
              "{'model': 'chars', 'prompt': 'a', 'descent': {'step_rule': 'angular', 'noise': {'sigma': 1}}}");
    assert_true(r.motion.rule == DESCENT_RULE_ANGULAR && r.motion.noise.seed == 1);
    request_release(&r);
    r = reads(REQUEST_COMPLETION,
              "{'model': 'chars', 'prompt': 'a', 'descent': {'solver': {'method': 'anderson', 'nstep': 3}}}");
    assert_true(r.solver.method == DESCENT_SOLVER_ANDERSON && r.solver.nstep == 3 && r.solver.residual == 1e-4f);
    request_release(&r);
    r = reads(REQUEST_COMPLETION, "{'model': 'flat', 'prompt': 'one', 'descent': {'step_scale': [1, 1]}}");
    request_release(&r);
    r = reads(REQUEST_COMPLETION, "{'model': 'chars', 'prompt': 'a', 'descent': {'exit': {}, 'noise': {}, 'solver': {}}}");
    request_release(&r);
}

/* As asked; where nothing is, as the server was told, as far as the request's T allows. */
static void drafts(void **state)
{
    static const struct {
        const char *model, *descent;
        int unasked, expected;
    } cases[] = {
        {"chars", "{'draft_steps': 0}", DESCENT_DRAFT_AUTO, 0},
        {"chars", "{'draft_steps': 4}", DESCENT_DRAFT_AUTO, 4},
        {"chars", "{'draft_steps': 4}", 0, 4},
        {"chars@9", "{'draft_steps': 8}", 2, 8},
        {"pair", "{'draft_steps': 0}", DESCENT_DRAFT_AUTO, 0},
        {"pair", "{'draft_steps': null}", 2, 0},
        {"bare", "{'draft_steps': 1}", 0, 1}, /* its block is applied again and again as NRGPT's is */
        {"chars", "{}", DESCENT_DRAFT_AUTO, DESCENT_DRAFT_AUTO},
        {"chars", "{}", 0, 0},
        {"chars", "{}", 3, 3},
        {"chars", "{}", 9, 4},
        {"chars@1", "{}", 3, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char body[160];
        api_error error = {0};
        generation_request r;
        request_limits limits = request_limits_defaults();
        limits.draft_steps = cases[i].unasked;
        (void)snprintf(body, sizeof body, "{'model': '%s', 'prompt': [1], 'descent': %s}", cases[i].model, cases[i].descent);
        assert_true(served_read(REQUEST_COMPLETION, body, &served_models, &limits, &r, &error));
        assert_int_equal(r.draft_steps, cases[i].expected);
        request_release(&r);
    }
}

/* What a name is of: the whole of it where there is such a model, else what stands before the last @. */
static void names_with_depth(void **state)
{
    (void)state;
    static const struct {
        const char *name, *id, *depth;
    } names[] = {{"chars", "chars", NULL}, {"chars@12", "chars", "12"}, {"chars@", "chars", ""},
                 {"chars@x@", NULL, NULL}, {"a@b", "a@b", NULL},        {"a@b@3x2", "a@b", "3x2"},
                 {"a@b@", "a@b", ""},      {"a@c", NULL, NULL},         {"", NULL, NULL}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        served_model *model = NULL;
        const char *depth;
        api_error error = {0};
        assert_int_equal(request_find_model(&served_models, names[i].name, &model, &depth, &error), names[i].id != NULL);
        assert_int_equal(error.status, names[i].id ? 0 : 404);
        if (!names[i].id) continue;
        assert_string_equal(model->id, names[i].id);
        if (names[i].depth)
            assert_string_equal(depth, names[i].depth);
        else
            assert_null(depth);
    }
}

/* ---- Prompts ----------------------------------------------------------------------------------------------------- */

typedef struct expected_prompt {
    size_t count, special;
    uint32_t tokens[8];
} expected_prompt;

static const struct {
    const char *model, *rest;
    size_t n;
    expected_prompt prompts[3];
} texts[] = {
    {"chars", "'prompt': 'ab'", 1, {{2, 0, {66, 67}}}},
    {"chars", "'prompt': ['a', '\\n\xc3\xa4']", 2, {{1, 0, {66}}, {2, 0, {0, 96}}}},
    {"chars", "'prompt': [5, 99.0, 0]", 1, {{3, 0, {5, 99, 0}}}},
    {"chars", "'prompt': [[1, 2], [3], [4]]", 3, {{2, 0, {1, 2}}, {1, 0, {3}}, {1, 0, {4}}}},
    {"chars", "'prompt': '<eos>a', 'parse_special': true", 1, {{2, 0, {99, 66}}}},
    {"chars", "'prompt': '<eos>'", 1, {{5, 0, {29, 70, 80, 84, 31}}}},
    {"pair", "'prompt': 'ab'", 1, {{3, 1, {1, 100, 101}}}},
    {"pair", "'prompt': 'a\\u0000'", 1, {{3, 1, {1, 100, 3}}}},
    {"pair", "'prompt': ''", 1, {{1, 1, {1}}}},
    {"pair", "'prompt': null", 1, {{1, 1, {1}}}},
    {"pair", "'echo': true", 1, {{1, 1, {1}}}},
    {"pair", "'prompt': ['', 'b']", 2, {{1, 1, {1}}, {2, 1, {1, 101}}}},
    {"pair", "'prompt': [100]", 1, {{1, 0, {100}}}}, /* tokens get no BOS */
    {"a@b", "'prompt': 'ab'", 1, {{2, 0, {100, 101}}}},
    {"a@b", "'prompt': ''", 1, {{1, 1, {1}}}},
    {"flat", "'prompt': 'one,two,zero'", 1, {{3, 0, {2, 3, 1}}}},
    {"bare", "'prompt': [0, 6]", 1, {{2, 0, {0, 6}}}},
};

static void prompts_as_tokens(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char body[512];
        (void)snprintf(body, sizeof body, "{'model': '%s', %s}", texts[i].model, texts[i].rest);
        generation_request r = reads(REQUEST_COMPLETION, body);
        assert_int_equal(r.n_prompts, texts[i].n);
        for (size_t p = 0; p < r.n_prompts; p++) {
            const expected_prompt *expected = &texts[i].prompts[p];
            if (r.prompts[p].count != expected->count || r.prompts[p].special != expected->special)
                fail_msg("%s: %zu tokens, %zu special", body, r.prompts[p].count, r.prompts[p].special);
            assert_memory_equal(r.prompts[p].tokens, expected->tokens, expected->count * sizeof(uint32_t));
        }
        request_release(&r);
    }
}

/* A prompt may fill the context; what follows it is bounded by the room behind it, and is at least a token. */
static void most_tokens(void **state)
{
    (void)state;
    static const struct {
        size_t prompt;
        const char *max_tokens;
        size_t limit;
    } lengths[] = {{1, "3", 3},  {1, "0", 0},  {1, "64", 64}, {1, "65", 64}, {1, "1000000000", 64},         {62, "9", 3},
                   {63, "9", 2}, {64, "9", 1}, {64, "1", 1},  {64, "0", 0},  {1, "9223372036854775807", 64}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        char body[256], text[80];
        memset(text, 'a', lengths[i].prompt);
        text[lengths[i].prompt] = '\0';
        (void)snprintf(body, sizeof body, "{'model': 'chars', 'prompt': '%s', 'max_tokens': %s}", text, lengths[i].max_tokens);
        generation_request r = reads(REQUEST_COMPLETION, body);
        assert_int_equal(request_limit_of(&r, 0), lengths[i].limit);
        request_release(&r);
    }
    generation_request r = reads(REQUEST_CHAT, "{'model': 'chars', 'messages': [{'role': 'user', 'content': ''}]}");
    assert_true(r.max_tokens == SIZE_MAX);
    assert_int_equal(request_limit_of(&r, 0), 65 - r.prompts[0].count);
    request_release(&r);
}

/* ---- Chat -------------------------------------------------------------------------------------------------------- */

/* The prompt of a conversation with model chars, as text. */
static void says(const char *messages, const char *expected)
{
    char body[1024];
    (void)snprintf(body, sizeof body, "{'model': 'chars', 'messages': %s}", messages);
    generation_request r = reads(REQUEST_CHAT, body);
    assert_int_equal(r.n_prompts, 1);
    assert_int_equal(r.prompts[0].special, 0);
    assert_int_equal(r.prompts[0].count, strlen(expected));
    for (size_t i = 0; i < r.prompts[0].count; i++)
        assert_int_equal(r.prompts[0].tokens[i], expected[i] == '\n' ? 0 : expected[i] - 31);
    request_release(&r);
}

static void conversations(void **state)
{
    (void)state;
    says("[{'role': 'user', 'content': 'hi'}]", "User: hi\n\nAssistant:");
    says("[{'role': 'user', 'content': [{'type': 'text', 'text': 'h'}, {'type': 'text', 'text': ''},"
         " {'type': 'text', 'text': 'i'}]}]",
         "User: hi\n\nAssistant:");
    says("[{'role': 'system', 'content': 's'}, {'role': 'user', 'content': 'u', 'name': 'x'},"
         " {'role': 'assistant', 'content': 'a', 'tool_calls': [], 'refusal': null}, {'role': 'user', 'content': []}]",
         "s\n\nUser: u\n\nAssistant: a\n\nUser: \n\nAssistant:");
    says("[{'role': 'user', 'content': 'u'}, {'role': 'assistant', 'content': null}, {'role': 'assistant'},"
         " {'role': 'user', 'content': '<eos>'}]",
         "User: u\n\nAssistant: \n\nAssistant: \n\nUser: <eos>\n\nAssistant:");
}

#define HI "'messages': [{'role': 'user', 'content': 'hi'}]"

static void chat_fields(void **state)
{
    (void)state;
    static const struct {
        const char *rest;
        size_t max_tokens;
        int logprobs;
    } chats[] = {
        {"", SIZE_MAX, -1},
        {", 'max_tokens': 3", 3, -1},
        {", 'max_tokens': 3, 'max_completion_tokens': 4", 4, -1},
        {", 'max_completion_tokens': 0", 0, -1},
        {", 'logprobs': true", SIZE_MAX, 0},
        {", 'logprobs': false", SIZE_MAX, -1},
        {", 'logprobs': true, 'top_logprobs': 20", SIZE_MAX, 20},
        {", 'logprobs': true, 'top_logprobs': null", SIZE_MAX, 0},
    };
    for (size_t i = 0; i < sizeof chats / sizeof chats[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, "{'model': 'chars', " HI "%s}", chats[i].rest);
        generation_request r = reads(REQUEST_CHAT, body);
        assert_true(r.max_tokens == chats[i].max_tokens);
        assert_int_equal(r.logprobs, chats[i].logprobs);
        request_release(&r);
    }
    generation_request r = reads(REQUEST_CHAT, "{'model': 'chars', " HI ", 'n': 3, 'stream': true, 'stop': 'x',"
                                               " 'stream_options': {'include_usage': true, 'include_obfuscation': true}}");
    assert_true(r.n == 3 && r.best_of == 3 && r.stream && r.include_usage && r.n_stop == 1);
    request_release(&r);
}

/* ---- Trace ------------------------------------------------------------------------------------------------------- */

static void traces(void **state)
{
    (void)state;
    generation_request r = reads(REQUEST_TRACE, "{'model': 'chars', 'prompt': 'ab'}");
    assert_true(r.kind == REQUEST_TRACE && r.max_tokens == 0 && r.logprobs == 5 && r.n_track == 0 && r.n == 1 &&
                r.best_of == 1);
    request_release(&r);
    r = reads(REQUEST_TRACE, "{'model': 'chars', 'prompt': [1, 2], 'max_tokens': 4, 'top': 0, 'track': [99, 0, 0],"
                             " 'seed': 7, 'temperature': 0, 'descent': {'steps': 6}}");
    assert_true(r.max_tokens == 4 && r.logprobs == 0 && r.n_track == 3 && r.track[0] == 99 && r.track[2] == 0);
    assert_true(r.sampling.seed == 7 && r.sampling.temperature == 0 && r.depth.steps[0] == 6);
    request_release(&r);
    r = reads(REQUEST_TRACE, "{'model': 'chars', 'prompt': ['ab'], 'track': []}");
    assert_int_equal(r.prompts[0].count, 2);
    request_release(&r);
}

/* ---- What passes ------------------------------------------------------------------------------------------------- */

static void fields_without_effect(void **state)
{
    (void)state;
    generation_request r = reads(
        REQUEST_CHAT, "{'model': 'chars', " HI ", 'tools': [], 'functions': [], 'tool_choice': 'none', 'function_call': 'auto',"
                      " 'parallel_tool_calls': true, 'response_format': {'type': 'text'}, 'modalities': ['text'],"
                      " 'store': true, 'metadata': {'a': 'b'}, 'service_tier': 'auto', 'prompt_cache_key': 'k',"
                      " 'safety_identifier': 's', 'verbosity': 'low', 'user': 'u', 'audio': null, 'suffix': ''}");
    assert_null(r.unknown_field);
    request_release(&r);
}

static void unknown_fields_are_noted(void **state)
{
    (void)state;
    static const struct {
        request_kind kind;
        const char *rest, *name;
    } unknown[] = {
        {REQUEST_COMPLETION, "'prompt': 'a', 'later': 1, 'other': 2", "later"},
        {REQUEST_COMPLETION, "'prompt': 'a', 'max_completion_tokens': 'x'", "max_completion_tokens"},
        {REQUEST_COMPLETION, "'prompt': 'a', 'a\\nb': {}", "a\\x0ab"},
        {REQUEST_CHAT, HI ", 'echo': 5", "echo"},
        {REQUEST_TRACE, "'prompt': 'a', 'stream': 5", "stream"},
        {REQUEST_COMPLETION, "'prompt': 'a', '01234567890123456789012345678901234567890123456789012345678901234567890': 1",
         "012345678901234567890123456789012345678901234567890123456789..."},
    };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
        char body[256];
        (void)snprintf(body, sizeof body, "{'model': 'chars', %s}", unknown[i].rest);
        generation_request r = reads(unknown[i].kind, body);
        assert_string_equal(r.unknown_field, unknown[i].name);
        request_release(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(everything_set),
        cmocka_unit_test(smallest_numbers),
        cmocka_unit_test(steps_by_precedence),
        cmocka_unit_test(histories_as_asked),
        cmocka_unit_test(efforts_above_the_limit),
        cmocka_unit_test(early_exit),
        cmocka_unit_test(defaults_of_later_fields),
        cmocka_unit_test(drafts),
        cmocka_unit_test(names_with_depth),
        cmocka_unit_test(prompts_as_tokens),
        cmocka_unit_test(most_tokens),
        cmocka_unit_test(conversations),
        cmocka_unit_test(chat_fields),
        cmocka_unit_test(traces),
        cmocka_unit_test(fields_without_effect),
        cmocka_unit_test(unknown_fields_are_noted),
    };
    return cmocka_run_group_tests(tests, served_set_up, served_tear_down);
}
