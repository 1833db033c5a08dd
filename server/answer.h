/* answer.h: what a job says: whole answers and stream chunks, as OpenAI's API has them, with what is ours beside. Writes JSON
 * text; sends nothing. Loop thread only, but for what may take long.
 *
 * answer.c has what all answers share; answer_completion.c, answer_chat.c and answer_trace.c what a choice looks like.
 */
#ifndef DESCENT_SERVER_ANSWER_H
#define DESCENT_SERVER_ANSWER_H

#include "job.h"

/* A part of a text's record: a piece of a stream, or all of it. */
typedef struct answer_part {
    const job_text *text;
    const char *bytes; /* [count] valid UTF-8 */
    size_t count;
    size_t from, to;           /* tokens of text->record */
    const token_trace *traces; /* a list; NULL: none */
    const char *finish;        /* "stop", "length"; NULL: it goes on */
    bool silent;               /* a chunk without text and tokens, for what else it says */
} answer_part;

typedef struct answer_kind {
    const char *id_prefix, *object, *chunk_object, *list; /* "choices", or what stands for them */
    void (*whole)(json_text *out, const answer_part *part);
    void (*chunk)(json_text *out, const answer_part *part); /* NULL: this kind does not stream */
    void (*opening)(json_text *out, const job_text *text);  /* a choice that comes before all others; NULL: none */
} answer_kind;

extern const answer_kind answer_completion, answer_chat, answer_trace;
const answer_kind *answer_kind_of(const job *j);

/* The file of states, into t->written; on any thread, as answer_text. */
void answer_states(job_text *t);

const char *answer_finish_reason(const job_text *t); /* "stop", "length" */

/* A text's part of an answer: of a text that has ended its choice in a whole answer, into t->written; of a stream the chunks of
 * what t->record holds. On any thread, while that text and j->head stay as they are. */
void answer_text(job_text *t);
void answer_pieces(job_text *t, json_text *out);

void answer_whole(job *j); /* everything, into j->out, when all texts are written */

/* A stream, appended to j->out: */
void answer_head(job *j);                /* into j->head; before the others */
void answer_opening(job *j);             /* what comes before any token */
void answer_finish(job *j, job_text *t); /* the text has ended: its final chunk, once */
void answer_end(job *j);                 /* usage, [DONE] */

/* ---- For the kinds ------------------------------------------------------------------------------------------------- */

void answer_text_or_null(json_text *out, const char *text); /* "stop", or null */
/* ,"step_scale":... and what else of its motion is not the default. */
void answer_put_motion(json_text *out, const generation_request *r);
void answer_traces(json_text *out, const answer_part *part); /* ,"descent":{"trace":[...]} where there are any */

#endif
