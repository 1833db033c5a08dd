/* request_states.c: the fields of POST /v1/descent/states: of, positions, layers, kinds, t, start, intervene. Behind the prompt
 * and the depth, which say what places there are. Every list is bounded by what it chooses from, every vector by the body. */
#include "request_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void states_request_free(states_request *s)
{
    if (!s) return;
    free(s->choice.positions.items);
    free(s->choice.layers.items);
    free(s->choice.kinds.items);
    free(s->choice.steps.items);
    free(s->changes);
    free(s->starts);
    free(s->vectors);
    free(s->values);
    free(s);
}

/* ---- Places ------------------------------------------------------------------------------------------------------ */

static uint32_t steps_of(descent_depth depth, uint32_t kind)
{
    return depth.steps[kind] ? depth.steps[kind] : 1;
}

/* Of the token at `position`: a prompt's last token takes what is generated behind it takes. */
static uint32_t steps_at(const request_reader *r, size_t position, uint32_t kind)
{
    bool last = position + 1 == r->out->prompts[0].count;
    return !last && r->out->history.prompt_steps > 0 ? r->out->history.prompt_steps : steps_of(r->out->depth, kind);
}

static uint32_t most_steps(const request_reader *r)
{
    uint32_t most = 0;
    descent_depth deepest = request_deepest(r->out);
    for (uint32_t k = 0; k < r->out->model->info->kinds; k++) most = steps_of(deepest, k) > most ? steps_of(deepest, k) : most;
    return most;
}

/* A list of integers from 0 to `most`, not empty and of at most as many items; absent: all. */
static void read_axis(const request_reader *r, const char *name, uint64_t most, states_axis *axis)
{
    char words[FIELDS_WORDS];
    const json_t *list = fields_array(&r->top, name);
    size_t count = json_array_size(list);
    if (!list) return;
    if (count == 0 || count > most + 1) {
        (void)fields_fail(&r->top, name, NULL, "has %zu numbers: expected 1 to %llu", count, (unsigned long long)most + 1);
        return;
    }
    axis->items = malloc(count * sizeof *axis->items);
    if (!axis->items) {
        request_no_memory(r);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        int64_t number;
        const json_t *value = json_array_get(list, i);
        if (!fields_as_integer(value, 0, (int64_t)most, &number)) {
            (void)fields_fail(&r->top, name, NULL, "has %s at %zu: expected integers from 0 to %llu",
                              fields_describe(value, words), i, (unsigned long long)most);
            return;
        }
        axis->items[axis->count++] = (uint32_t)number;
    }
}

/* The kind of sub-layer a text names. */
static bool find_kind(const request_reader *r, const char *text, size_t bytes, uint32_t *kind)
{
    const descent_model_info *info = r->out->model->info;
    for (*kind = 0; *kind < info->kinds; ++*kind)
        if (strlen(info->kind_names[*kind]) == bytes && !memcmp(text, info->kind_names[*kind], bytes)) return true;
    return false;
}

static const char *kinds_of(const request_reader *r, char words[FIELDS_WORDS])
{
    const descent_model_info *info = r->out->model->info;
    (void)snprintf(words, FIELDS_WORDS, info->kinds > 1 ? "%s or %s" : "%s", info->kind_names[0],
                   info->kinds > 1 ? info->kind_names[1] : "");
    return words;
}

static void read_kinds(const request_reader *r, states_axis *axis)
{
    char words[FIELDS_WORDS], all[FIELDS_WORDS];
    const json_t *list = fields_array(&r->top, "kinds");
    size_t count = json_array_size(list);
    if (!list) return;
    if (count == 0 || count > r->out->model->info->kinds) {
        (void)fields_fail(&r->top, "kinds", NULL, "has %zu names: expected 1 to %u of %s", count,
                          (unsigned)r->out->model->info->kinds, kinds_of(r, all));
        return;
    }
    axis->items = malloc(count * sizeof *axis->items);
    if (!axis->items) {
        request_no_memory(r);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        uint32_t kind;
        if (!json_is_string(value) || !find_kind(r, json_string_value(value), json_string_length(value), &kind)) {
            (void)fields_fail(&r->top, "kinds", NULL, "has %s at %zu: expected %s",
                              json_is_string(value) ? fields_quote(value, words) : fields_describe(value, words), i,
                              kinds_of(r, all));
            return;
        }
        axis->items[axis->count++] = kind;
    }
}

/* Which of `names` (ended by NULL) a field is; the first where it is absent. */
static size_t read_word(const fields *f, const char *name, const char *const *names, const char *expected)
{
    char words[FIELDS_WORDS];
    size_t bytes;
    const char *text = fields_text(f, name, names[0], &bytes);
    for (size_t i = 0; names[i]; i++)
        if (!strcmp(text, names[i]) && strlen(text) == bytes) return i;
    (void)fields_fail(f, name, NULL, "is %s: expected %s", fields_quote(fields_any(f, name), words), expected);
    return 0;
}

static void read_choice(const request_reader *r, states_request *s)
{
    static const char *const of[] = {"x", "g", "both", NULL};
    const descent_model_info *info = r->out->model->info;
    size_t count = r->out->n_prompts > 0 ? r->out->prompts[0].count : 1;
    s->choice.of = (int)read_word(&r->top, "of", of, "x, g or both") + 1;
    read_axis(r, "positions", count - 1, &s->choice.positions);
    read_axis(r, "layers", info->layers - 1, &s->choice.layers);
    read_kinds(r, &s->choice.kinds);
    read_axis(r, "t", most_steps(r), &s->choice.steps);
    if (!fields_ok(&r->top)) return;
    s->most = states_most(info, request_deepest(r->out), &s->choice, count);
    if (s->most > STATES_MOST_NUMBERS / info->width)
        (void)fields_fail(&r->top, "positions", "states_too_large",
                          "and the other fields choose %llu states of %u numbers each: at most %d numbers are answered",
                          (unsigned long long)s->most, (unsigned)info->width, STATES_MOST_NUMBERS);
}

/* ---- Starts ------------------------------------------------------------------------------------------------------ */

static bool fail_start(const fields *f, const safetensors_vector *v, const char *what)
{
    return fields_fail(f, "safetensors", NULL, "has a tensor \"%s\" %s", v->name, what);
}

static bool all_finite(const float *values, size_t count)
{
    size_t i = 0;
    while (i < count && isfinite(values[i])) i++;
    return i == count;
}

static bool add_start(const request_reader *r, const fields *f, const safetensors_vector *v, states_request *s)
{
    descent_site site;
    bool is_g;
    size_t count = r->out->prompts[0].count;
    if (!states_site(r->out->model->info, v->name, &site, &is_g))
        return fail_start(f, v, "which names no place of this model: expected x.{position}.{layer}.{kind}.{t}");
    if (is_g) return fail_start(f, v, "of g: tokens start from x");
    if (!all_finite(v->values, r->out->model->info->width)) return fail_start(f, v, "with a number that is not finite");
    if (site.position >= count) return fail_start(f, v, "at a position that the prompt does not have");
    if (site.step >= steps_at(r, site.position, site.kind))
        return fail_start(f, v, "at a t that no step begins at: expected one below T");
    if (!r->out->model->info->deepens && site.step > 0)
        return fail_start(f, v, "at a t above 0: tokens of this model start where a sub-layer begins, at t = 0");
    for (size_t i = 0; i < s->reach.n_starts; i++)
        if (s->starts[i].site.position == site.position)
            return fail_start(f, v, "at a position that another tensor starts: expected one of each position");
    s->starts[s->reach.n_starts++] = (descent_state){site, v->values};
    return true;
}

static void read_states(const request_reader *r, const fields *f, states_request *s)
{
    char message[SAFETENSORS_MESSAGE];
    unsigned char *bytes = NULL;
    size_t length, size, count = 0;
    const char *text = fields_text(f, "safetensors", NULL, &length);
    if (!fields_ok(f)) return;
    if (!text) {
        (void)fields_fail(f, "safetensors", NULL, "is missing: expected a file of states, in base64");
        return;
    }
    if (!base64_decode(text, length, &bytes, &size)) {
        (void)fields_fail(f, "safetensors", NULL, "is not base64");
    } else if (!safetensors_read(bytes, size, r->out->model->info->width, &s->vectors, &count, message)) {
        (void)fields_fail(f, "safetensors", NULL, "is not a file of states: %s", message);
    } else if (count == 0 || count > r->out->prompts[0].count) {
        (void)fields_fail(f, "safetensors", NULL, "has %zu tensors: expected 1 to %zu, at most one of each token", count,
                          r->out->prompts[0].count);
    } else if (!(s->starts = malloc(count * sizeof *s->starts))) {
        request_no_memory(r);
    } else {
        for (size_t i = 0; i < count && add_start(r, f, &s->vectors[i], s); i++) continue;
        s->reach.starts = s->starts;
    }
    free(bytes);
}

/* "previous", or {"from": "noise", "sigma": 1, "seed": 1} */
static void read_start(const request_reader *r, states_request *s)
{
    enum { EMBEDDING, STATE, NOISE, PREVIOUS };
    static const char *const from[] = {"embedding", "state", "noise", "previous", NULL};
    static const char *const names[] = {"from", "safetensors", "sigma", "seed", NULL};
    static const char expected[] = "embedding, state, noise or previous";
    bool is_word = json_is_string(fields_any(&r->top, "start"));
    fields f = is_word ? r->top : fields_object(&r->top, "start", "start");
    if (!is_word) fields_only(&f, names);
    size_t which = f.object ? read_word(&f, is_word ? "start" : "from", from, expected) : EMBEDDING;
    s->start = from[which];
    if (!fields_ok(&r->top)) return;
    if (is_word && (which == STATE || which == NOISE)) {
        (void)fields_fail(&r->top, "start", NULL, "is \"%s\": expected an object, {\"from\": \"%s\", ...}", from[which],
                          from[which]);
        return;
    }
    if (which == STATE) read_states(r, &f, s);
    if (which != STATE && !is_word && fields_any(&f, "safetensors"))
        (void)fields_fail(&f, "safetensors", NULL, "is set, but from is %s: expected state", from[which]);
    if (which != NOISE && !is_word && (fields_any(&f, "sigma") || fields_any(&f, "seed")))
        (void)fields_fail(&f, fields_any(&f, "sigma") ? "sigma" : "seed", NULL, "is set, but from is %s: expected noise",
                          from[which]);
    if (which == NOISE) {
        s->reach.noise = request_positive(fields_real(&f, "sigma", 0, 1e6, true, 1));
        s->reach.noise_seed = fields_integer(&f, "seed", INT64_MIN, INT64_MAX, 1);
    }
    s->reach.previous = which == PREVIOUS;
}

/* ---- Interventions ----------------------------------------------------------------------------------------------- */

static bool read_values(const request_reader *r, const fields *f, float *values)
{
    char words[FIELDS_WORDS];
    uint32_t width = r->out->model->info->width;
    const json_t *list = fields_array(f, "values");
    if (!fields_ok(f)) return false;
    if (json_array_size(list) != width)
        return fields_fail(f, "values", NULL, "has %zu numbers: expected %u, the width of model %s", json_array_size(list),
                           (unsigned)width, r->out->model->id);
    for (uint32_t c = 0; c < width; c++) {
        const json_t *value = json_array_get(list, c);
        double number = json_is_number(value) ? json_number_value(value) : 2e38;
        if (!(number >= -1e38 && number <= 1e38))
            return fields_fail(f, "values", NULL, "has %s at %u: expected numbers from -1e38 to 1e38",
                               fields_describe(value, words), (unsigned)c);
        values[c] = (float)number;
    }
    return true;
}

static bool read_change(const request_reader *r, const fields *f, float *values, descent_change *change)
{
    static const char *const names[] = {"position", "layer", "kind", "t", "of", "how", "values", NULL};
    static const char *const hows[] = {"add", "set", NULL}, *const of[] = {"x", "g", NULL};
    static const descent_intervention which[2][2] = {{DESCENT_ADD_X, DESCENT_ADD_G}, {DESCENT_SET_X, DESCENT_SET_G}};
    const descent_model_info *info = r->out->model->info;
    char words[FIELDS_WORDS], all[FIELDS_WORDS];
    size_t bytes;
    uint32_t kind = 0;
    fields_only(f, names);
    const char *name = fields_text(f, "kind", info->kind_names[0], &bytes);
    if (fields_ok(f) && !find_kind(r, name, bytes, &kind))
        return fields_fail(f, "kind", NULL, "is %s: expected %s", fields_quote(fields_any(f, "kind"), words), kinds_of(r, all));
    descent_site site = {
        .layer = (uint32_t)fields_integer(f, "layer", 0, (int64_t)info->layers - 1, 0),
        .kind = kind,
        .position = (size_t)fields_integer(f, "position", 0, (int64_t)r->out->prompts[0].count - 1, 0),
    };
    if (fields_ok(f)) site.step = (uint32_t)fields_integer(f, "t", 0, (int64_t)steps_at(r, site.position, kind) - 1, 0);
    if (fields_ok(f) && !fields_any(f, "position"))
        return fields_fail(f, "position", NULL, "is missing: expected the position of a token");
    size_t how = read_word(f, "how", hows, "add or set"), on_g = read_word(f, "of", of, "x or g");
    if (!read_values(r, f, values)) return false;
    *change = (descent_change){.state = {site, values}, .how = which[how][on_g]};
    return fields_ok(f);
}

static void read_changes(const request_reader *r, states_request *s)
{
    char words[FIELDS_WORDS], path[32];
    const json_t *list = fields_array(&r->top, "intervene");
    size_t count = json_array_size(list), width = r->out->model->info->width;
    if (count == 0) return;
    if (count > STATES_MOST_CHANGES) {
        (void)fields_fail(&r->top, "intervene", NULL, "has %zu entries: expected at most %d", count, STATES_MOST_CHANGES);
        return;
    }
    s->changes = malloc(count * sizeof *s->changes);
    s->values = malloc(count * width * sizeof *s->values);
    if (!s->changes || !s->values) {
        request_no_memory(r);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        json_t *one = json_array_get(list, i);
        (void)snprintf(path, sizeof path, "intervene[%zu]", i);
        if (!json_is_object(one)) {
            (void)fields_fail(&r->top, path, NULL, "is %s: expected an object", fields_describe(one, words));
            return;
        }
        fields f = {.object = one, .path = path, .error = r->top.error};
        if (!read_change(r, &f, s->values + i * width, &s->changes[i])) return;
        s->reach.n_changes++;
    }
    s->reach.changes = s->changes;
}

void request_read_states(const request_reader *r)
{
    states_request *s = calloc(1, sizeof *s);
    r->out->states = s;
    if (!s) {
        request_no_memory(r);
        return;
    }
    if (!fields_ok(&r->top)) return;
    read_choice(r, s);
    if (fields_ok(&r->top)) read_start(r, s);
    if (fields_ok(&r->top)) read_changes(r, s);
}
