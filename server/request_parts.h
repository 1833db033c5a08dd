/* request_parts.h: between the files that read a generating request, each one part of it: request.c the answer's shape and the
 * order of things, request_depth.c T and the rest of "descent", request_motion.c how its steps move, request_sampling.c how
 * tokens are chosen, request_prompt.c and request_chat.c what is continued. Each reads from `top` into `out`; an error that
 * stands makes the rest do nothing of note.
 */
#ifndef DESCENT_SERVER_REQUEST_PARTS_H
#define DESCENT_SERVER_REQUEST_PARTS_H

#include "request.h"

typedef struct request_reader {
    fields top; /* the body's object */
    const request_limits *limits;
    const char *depth_text;  /* behind the model name's @; NULL: none */
    generation_request *out; /* .kind and .model are set */
} request_reader;

void request_read_depth(const request_reader *r);
void request_read_motion(const request_reader *r, const fields *descent);
void request_read_solver(const request_reader *r, const fields *descent);
/* A prompt's tokens take as many steps as whoever reads them, but with histories that allow it. `f` holds prompt_steps. */
bool request_check_prompt_steps(const fields *f, const descent_history *history, descent_depth depth);
/* T of each kind by its name into *depth; one that is missing stays. */
void request_read_steps_by_kind(const request_reader *r, const fields *steps, descent_depth *depth);
void request_read_scaling(const request_reader *r); /* behind request_read_depth */
void request_read_sampling(const request_reader *r, int64_t seed);
void request_read_prompts(const request_reader *r); /* behind n and best_of */
void request_read_states(const request_reader *r);  /* behind the prompt and the depth */
void request_read_messages(const request_reader *r);

/* Which of `words` (NULL-terminated) a text is, the first where it is absent; the first too where it is none of them, which is
 * an error. */
size_t request_word(const fields *f, const char *name, const char *const *words);
/* A number above 0 as a float above 0. */
float request_positive(double value);
/* 500: no memory. */
void request_no_memory(const request_reader *r);
/* Checks the length of the text in field `name` before it is read: no context holds more than this many bytes for each of its
 * tokens, and what is far too long shall not cost the time to read it. */
enum { REQUEST_MOST_TOKEN_BYTES = 256 };
bool request_check_text(const request_reader *r, const char *name, size_t bytes);
/* Checks the prompt made from field `name`: its length against the context and the server's limit, its tokens against V. */
bool request_check_prompt(const request_reader *r, const char *name, const prompt *p);
/* What the tokenizer or a chat template could not do with the text in field `name`. Returns false. */
bool request_unspelled(const request_reader *r, const char *name, const descent_status *status);

#endif
