/* eval_match.c: exact match: how many of a file's questions are answered right at each depth. */
#include "eval.h"

#include "answers.h"
#include "terminal.h"

#include <stdlib.h>

enum { SIDE_BY_SIDE = 64 };

/* Answers the questions at one depth, so many at a time, and counts the right ones. */
static int measure_depth(const session *with, const question_set *set, const asked_depth *at, uint64_t *group, answer *answers,
                         progress *bar, match_result *result)
{
    const descent_sequence_options how = {
        .depth = at->depth, .motion = with->motion, .solver = with->solver, .exit = with->exit, .history = with->history};
    *result = (match_result){.right = 0};
    for (size_t begin = 0, n; begin < set->count; begin += n, *group += n) {
        n = set->count - begin < SIDE_BY_SIDE ? set->count - begin : SIDE_BY_SIDE;
        const question *asked[SIDE_BY_SIDE];
        for (size_t i = 0; i < n; i++) asked[i] = &set->questions[begin + i];
        int exit_code = answer_questions(with, asked, n, &how, *group, answers);
        if (exit_code != EXIT_SUCCESS || interrupted()) return exit_code != EXIT_SUCCESS ? exit_code : EXIT_INTERRUPTED;
        for (size_t i = 0; i < n; i++) {
            if (answers[i].code != DESCENT_OK) {
                progress_end(bar);
                cli_error("%s", answers[i].status.message);
                return EXIT_FAILURE;
            }
            result->right += answers[i].right;
            result->tokens += set->questions[begin + i].prompt_count + answers[i].count - 1; /* the last one is not run */
            result->token_steps += answers[i].row_steps;
        }
        progress_advance(bar, n);
    }
    return EXIT_SUCCESS;
}

int measure_match(const session *with, const question_set *set, const asked_depth *depths, size_t n, match_result *results)
{
    if (!answers_can_end(with)) return EXIT_FAILURE;
    answer *answers = calloc(SIDE_BY_SIDE, sizeof *answers);
    if (!answers) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    uint64_t group = 1; /* prefixes are shared with nobody: every item's steps are counted */
    progress bar = progress_begin("exact match", "items", set->count * n);
    int exit_code = EXIT_SUCCESS;
    for (size_t d = 0; d < n && exit_code == EXIT_SUCCESS; d++)
        exit_code = measure_depth(with, set, &depths[d], &group, answers, &bar, &results[d]);
    progress_end(&bar);
    free(answers);
    return exit_code;
}
