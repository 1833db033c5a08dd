/* states.h: x and g of chosen places of a text's descents, gathered as they are observed and written as safetensors:
 *
 *     "x.{position}.{layer}.{kind}.{t}"   e.g. "g.3.0.block.2", "x.0.1.mlp.0": [C] numbers
 *
 * and the same names read back as places. A gathering belongs to the thread that steps the batch until its text has ended.
 */
#ifndef DESCENT_SERVER_STATES_H
#define DESCENT_SERVER_STATES_H

#include "safetensors.h"

#include "descent.h"

enum { STATES_X = 1, STATES_G = 2 };

/* Which numbers are chosen, of one axis: NULL list: all. */
typedef struct states_axis {
    uint32_t *items; /* [count], owned by whoever made it */
    size_t count;
} states_axis;

typedef struct states_choice {
    int of;                                      /* STATES_X, STATES_G, both */
    states_axis positions, layers, kinds, steps; /* t, up to T, where the last state is */
} states_choice;

/* Vectors there may come to be, for a text of `count` tokens; saturates. */
uint64_t states_most(const descent_model_info *info, descent_depth depth, const states_choice *choice, size_t count);

typedef struct states_record states_record;
states_record *states_create(const descent_model_info *info, const states_choice *choice,
                             uint64_t most); /* NULL without memory */
void states_destroy(states_record *s);       /* NULL is allowed */
void states_observe(states_record *s, const descent_observation *seen);

/* Writes what was gathered, by position, layer, kind and t, x before g. `metadata` as in safetensors_write. */
void states_write(states_record *s, json_text *out, const char *const *metadata);

/* Reads a name; false where it is none of a place of this model. *is_g: of g. */
bool states_site(const descent_model_info *info, const char *name, descent_site *site, bool *is_g);

#endif
