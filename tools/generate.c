/* generate.c: see generate.h. */
#include "generate.h"

size_t generation_room(const session *with, size_t prompt_count)
{
    return prompt_count <= with->info->context ? with->info->context - prompt_count + 1 : 0;
}

/* Enrols what is unfinished; *unfinished counts the sequences that still have some. */
static descent_code enrol(const session *with, descent_sequence *const *sequences, size_t n, size_t *unfinished,
                          descent_status *status)
{
    *unfinished = 0;
    for (size_t i = 0; i < n; i++) {
        size_t added;
        descent_code code = descent_sequence_state_code(sequences[i], status);
        if (code != DESCENT_OK) return code;
        if (descent_sequence_finished(sequences[i]) == descent_sequence_length(sequences[i])) continue;
        (*unfinished)++;
        code = descent_batch_add(with->batch, sequences[i], SIZE_MAX, &added, status);
        if (code != DESCENT_OK) return code;
    }
    return DESCENT_OK;
}

descent_code advance_all(const session *with, descent_sequence *const *sequences, size_t n, progress *bar,
                         descent_status *status)
{
    for (;;) {
        size_t unfinished;
        descent_step_report report;
        descent_code code = enrol(with, sequences, n, &unfinished, status);
        if (code != DESCENT_OK || !unfinished || interrupted()) return code;
        if (!descent_batch_rows(with->batch)) {
            *status = (descent_status){.code = DESCENT_LIMIT, .message = "the batch takes none of the tokens left to do"};
            return status->code;
        }
        code = descent_batch_step(with->batch, &report, status);
        if (code != DESCENT_OK) return code;
        if (bar) progress_advance(bar, report.rows);
    }
}
