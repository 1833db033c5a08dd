/* request_scaling.h: what a scaling experiment measures (POST /v1/descent/scaling): texts cut in windows, or records, and a
 * list of depths. Read from the body by request_scaling.c; the model and the knobs of its descents are the request's.
 */
#ifndef DESCENT_SERVER_REQUEST_SCALING_H
#define DESCENT_SERVER_REQUEST_SCALING_H

#include "models.h"
#include "questions.h"

/* Measures that one experiment keeps, at most: sweeps (or questions to be answered) x depths. */
enum { SCALING_MOST_MEASURES = 1 << 17 };
enum { SCALING_ANSWER_TOKENS = 60 }; /* models.md: exact match */

/* One input of a sweep. */
typedef struct scaling_input {
    const uint32_t *tokens; /* [count], of a text or a question */
    size_t count, first;    /* as in descent_sweep_options */
    uint64_t unit;          /* as in descent_scaling_summarize: the text, the window or the question */
} scaling_input;

typedef struct scaling_text {
    uint32_t *tokens; /* [count], owned */
    size_t count;
} scaling_text;

/* What intervals of texts resample. AUTO, which no plan has: texts where there are 8 of them or more, else windows. */
typedef enum scaling_units { SCALING_AUTO, SCALING_WINDOWS, SCALING_DOCUMENTS } scaling_units;

/* Of texts and questions one is there. */
typedef struct scaling_plan {
    descent_depth *depths; /* [n_depths], each once */
    size_t n_depths;
    scaling_text *texts;
    size_t n_texts;
    question *questions; /* all with choices or all with answers */
    size_t n_questions;
    bool answers;
    scaling_input *inputs; /* [n_inputs] in order: windows of texts, choices of questions; none where `answers` */
    size_t n_inputs;
    double threshold;
    scaling_units units;
    descent_scaling_options options; /* complete */
    uint64_t token_steps;            /* that the whole takes, at most */
} scaling_plan;

void scaling_plan_free(scaling_plan *plan); /* NULL is allowed */

/* Tokens that follow a question's prompt at most. */
size_t scaling_answer_room(const descent_model_info *info, const question *q);
/* Token-steps that a question takes at a depth, at most: to be answered, and to have prompt and answer swept. */
uint64_t scaling_answer_steps(const served_model *model, const question *q, descent_depth depth,
                              const descent_history *history);

#endif
