/* states.c: see states.h. */
#include "states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct gathered {
    descent_site site;
    bool is_g;
    size_t values; /* which vector of states.values */
} gathered;

struct states_record {
    const descent_model_info *info;
    const states_choice *choice;
    gathered *places; /* [most] */
    float *values;    /* [most][C] */
    size_t count, most;
};

static size_t axis_size(const states_axis *axis, size_t all)
{
    return axis->items ? axis->count : all;
}

static bool chosen(const states_axis *axis, uint64_t number)
{
    for (size_t i = 0; axis->items && i < axis->count; i++)
        if (axis->items[i] == number) return true;
    return !axis->items;
}

uint64_t states_most(const descent_model_info *info, descent_depth depth, const states_choice *choice, size_t count)
{
    uint64_t each = 0;
    for (uint32_t k = 0; k < info->kinds; k++) {
        size_t steps = (depth.steps[k] ? depth.steps[k] : 1u) + (size_t)1;
        size_t asked = axis_size(&choice->steps, steps);
        if (chosen(&choice->kinds, k)) each += asked < steps ? asked : steps;
    }
    each *= axis_size(&choice->layers, info->layers) * ((choice->of & STATES_X ? 1u : 0u) + (choice->of & STATES_G ? 1u : 0u));
    size_t positions = axis_size(&choice->positions, count);
    return each > 0 && positions > UINT64_MAX / each ? UINT64_MAX : each * positions;
}

states_record *states_create(const descent_model_info *info, const states_choice *choice, uint64_t most)
{
    states_record *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    *s = (states_record){.info = info, .choice = choice, .most = (size_t)most};
    s->places = malloc((s->most ? s->most : 1) * sizeof *s->places);
    s->values = malloc((s->most ? s->most : 1) * info->width * sizeof *s->values);
    if (s->places && s->values) return s;
    states_destroy(s);
    return NULL;
}

void states_destroy(states_record *s)
{
    if (!s) return;
    free(s->places);
    free(s->values);
    free(s);
}

static void gather(states_record *s, const descent_observation *seen, bool is_g)
{
    const float *from = is_g ? seen->g : seen->x;
    if (!from || s->count == s->most) return;
    memcpy(s->values + s->count * s->info->width, from, s->info->width * sizeof *from);
    s->places[s->count] = (gathered){.site = seen->site, .is_g = is_g, .values = s->count};
    s->count++;
}

void states_observe(states_record *s, const descent_observation *seen)
{
    const states_choice *c = s->choice;
    if (!chosen(&c->positions, seen->site.position) || !chosen(&c->layers, seen->site.layer) ||
        !chosen(&c->kinds, seen->site.kind) || !chosen(&c->steps, seen->site.step))
        return;
    if (c->of & STATES_X) gather(s, seen, false);
    if (c->of & STATES_G) gather(s, seen, true);
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    const gathered *x = a, *y = b;
    if (x->site.position != y->site.position) return x->site.position < y->site.position ? -1 : 1;
    if (x->site.layer != y->site.layer) return x->site.layer < y->site.layer ? -1 : 1;
    if (x->site.kind != y->site.kind) return x->site.kind < y->site.kind ? -1 : 1;
    if (x->site.step != y->site.step) return x->site.step < y->site.step ? -1 : 1;
    return (int)x->is_g - (int)y->is_g;
}

void states_write(states_record *s, json_text *out, const char *const *metadata)
{
    safetensors_vector *vectors = malloc((s->count ? s->count : 1) * sizeof *vectors);
    qsort(s->places, s->count, sizeof *s->places, compare);
    for (size_t i = 0; vectors && i < s->count; i++) {
        const gathered *g = &s->places[i];
        (void)snprintf(vectors[i].name, sizeof vectors[i].name, "%s.%zu.%u.%s.%u", g->is_g ? "g" : "x", g->site.position,
                       g->site.layer, s->info->kind_names[g->site.kind], g->site.step);
        vectors[i].values = s->values + g->values * s->info->width;
    }
    out->failed |= !vectors;
    if (vectors) safetensors_write(out, vectors, s->count, s->info->width, metadata);
    free(vectors);
}

/* A number before `end`, and past it. */
static bool take_number(const char **at, char end, uint64_t *number)
{
    const char *c = *at;
    *number = 0;
    if (*c < '0' || *c > '9' || (*c == '0' && c[1] >= '0' && c[1] <= '9')) return false;
    for (; *c >= '0' && *c <= '9'; c++) {
        if (*number > UINT32_MAX) return false;
        *number = *number * 10 + (uint64_t)(*c - '0');
    }
    if (*c != end || *number > UINT32_MAX) return false;
    *at = c + (end != '\0');
    return true;
}

bool states_site(const descent_model_info *info, const char *name, descent_site *site, bool *is_g)
{
    const char *at = name + 2;
    uint64_t position, layer, step;
    if ((name[0] != 'x' && name[0] != 'g') || name[1] != '.') return false;
    if (!take_number(&at, '.', &position) || !take_number(&at, '.', &layer)) return false;
    uint32_t kind = 0;
    size_t length = strcspn(at, ".");
    while (kind < info->kinds && (strlen(info->kind_names[kind]) != length || strncmp(at, info->kind_names[kind], length) != 0))
        kind++;
    if (kind == info->kinds || at[length] != '.') return false;
    at += length + 1;
    if (!take_number(&at, '\0', &step) || layer >= info->layers) return false;
    *site = (descent_site){.layer = (uint32_t)layer, .kind = kind, .step = (uint32_t)step, .position = (size_t)position};
    *is_g = name[0] == 'g';
    return true;
}
