/* served.h: five small models as a server has them, but for schedulers: one of each way in which a request meets a model. Every
 * context is 64 tokens.
 *
 *     id      family    T      vocabulary (V)
 *     chars   NRGPT     5      characters (100): "\n" is 0, ASCII c is c - 31, "ä" 96, "€" 97, "<eos>" 99; chat template plain
 *     pair    CEM       3x2    SentencePiece (259): byte b is 3 + b, BOS 1 is put before texts; chat template llama2
 *     a@b     hybrid    4 (of the MLP; its attention is Llama's)   the same, BOS 1 is there but not put; V is 200
 *     flat    GPT       none   words between commas (4): "<eos>", "zero", "one", "two"
 *     bare    GPT_Rec   2      none; V is 7
 */
#ifndef TEST_SERVED_H
#define TEST_SERVED_H

#include "request.h"

/* Writes and opens them. */
model_set served_open(void);
void served_close(model_set *models);
/* For a group of cmocka tests that share them: `served_models` is there between the two. */
extern model_set served_models;
int served_set_up(void **state);
int served_tear_down(void **state);
served_model *served_find(const model_set *models, const char *id);

/* request_read of a body written with ' for ", copied to memory of its exact size. Seed where it gives none: SERVED_SEED. */
enum { SERVED_SEED = 42 };
bool served_read(request_kind kind, const char *body, const model_set *models, const request_limits *limits,
                 generation_request *out, api_error *error);

#endif
