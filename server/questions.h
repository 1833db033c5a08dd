/* questions.h: a question with its answer, or with choices to pick from, as the tokens a model reads. One reading of them for
 * the command line's files and for requests.
 *
 * With an answer: right is a text whose last token, before the end, is the answer (models.md's exact match). With choices:
 * prompt and choice are one text, tokenized as one, since a token may begin in the one and end in the other; what counts of a
 * choice are the tokens from the first on that any of the texts has otherwise than the prompt alone, so that of all choices the
 * same part of the text is weighed.
 */
#ifndef DESCENT_SERVER_QUESTIONS_H
#define DESCENT_SERVER_QUESTIONS_H

#include "descent.h"

#include <jansson.h>

enum { QUESTION_MOST_CHOICES = 256 };

typedef struct question_text {
    const char *bytes; /* may hold NULs */
    size_t length;
} question_text;

typedef struct question_choice {
    uint32_t *tokens; /* of prompt and choice; at least scored + 1, at most the context and one more */
    size_t count;
    size_t bytes; /* of the choice alone, 1 at least */
} question_choice;

/* Of the two, answer and choices, one is NULL. */
typedef struct question {
    uint32_t *prompt; /* [prompt_count], 1 to the context */
    size_t prompt_count;
    char *answer; /* may hold NULs */
    size_t answer_bytes;
    int64_t answer_token; /* the token that spells it alone; -1 where it takes several */
    question_choice *choices;
    size_t n_choices; /* 2 at least */
    size_t right;     /* the index of the right choice */
    size_t scored;    /* the first token of the choices that counts, 1 at least */
} question;

/* Each fills *into, released with question_release in any case. BAD_ARGUMENT says what is wrong with the record. */
descent_code question_of_answer(const descent_tokenizer *tokenizer, uint32_t context, question_text prompt,
                                question_text answer, question *into, descent_status *status);
descent_code question_of_choices(const descent_tokenizer *tokenizer, uint32_t context, question_text prompt,
                                 const question_text *choices, size_t n, size_t right, question *into, descent_status *status);
/* {"prompt", "answer"} or {"prompt", "choices", "answer": the index}; other fields are nobody's. */
descent_code question_of_json(const descent_tokenizer *tokenizer, uint32_t context, const json_t *object, question *into,
                              descent_status *status);
void question_release(question *of);

/* Whether a text that ended after token `last` gave the record's answer. */
bool question_is_answered(const question *of, const descent_tokenizer *tokenizer, uint32_t last);

/* What a record of choices comes to at one depth, of one sweep a choice, its first position `scored`: choices [n_choices]. The
 * item is right where the right choice is the likeliest, the first on a tie; *right_by_bytes says so of the likelihood per
 * byte. Loss, bytes, energy and convergence are the right choice's; tokens, steps, multiply-adds and seconds those of all.
 * Where a choice diverged, the record did. */
descent_measure question_measure(const question *of, const descent_measure *choices, bool *right_by_bytes);

#endif
