/* answers.h: greedy answers to questions, on a scheduler: exact match, as models.md has it, for eval --match and scale. */
#ifndef DESCENT_TOOLS_ANSWERS_H
#define DESCENT_TOOLS_ANSWERS_H

#include "questions.h"
#include "session.h"

#include <stdio.h>

enum { ANSWER_MOST_TOKENS = 60 };

typedef struct question_set {
    question *questions; /* all with answers, or all with choices */
    size_t count;
} question_set;

/* Reads a file of records: JSON, one object a line, where its name ends in .jsonl; elsewhere lines "prompt TAB answer", the
 * prompt ending with its first "=" where there is one. Empty lines are skipped. The result is the exit code;
 * question_set_release in any case. */
int read_questions(const session *with, const char *path, question_set *set);
void question_set_release(question_set *set);

/* What a question was answered at one depth. */
typedef struct answer {
    uint32_t tokens[ANSWER_MOST_TOKENS]; /* chosen, EOS included */
    size_t count;
    bool right;        /* the text ended, and the token before its end is the answer */
    descent_code code; /* DESCENT_DIVERGED: a state or logit was not finite, the answer ends there; else DESCENT_OK */
    descent_status status;
    uint64_t row_steps;
} answer;

/* Answers questions [n] at a depth, all side by side: answers [n], in pages of the groups first_group .. first_group + n - 1.
 * Ends early where Ctrl-C came (interrupted()). The result is the exit code, where it is a failure after a message. */
int answer_questions(const session *with, const question *const *questions, size_t n, const descent_sequence_options *how,
                     uint64_t first_group, answer *answers);

/* False after a message where the tokenizer cannot end a text. */
bool answers_can_end(const session *with);

#endif
