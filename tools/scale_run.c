/* scale_run.c: from inputs to readings. A window of a text is one sweep over all depths; a question with choices one for each
 * choice; a question with an answer is answered anew at every depth, and what it said is then swept at that depth, as that is
 * what its energies, steps and multiply-adds are of. Inputs are measured many at a time and written to the log as they finish,
 * in whatever order. */
#include "scale.h"

#include "rapl.h"
#include "scale_sweeps.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEPS_AT_ONCE = 128, ANSWERS_AT_ONCE = 64 };

typedef struct runner {
    const session *with;
    const scale_data *data;
    const scale_how *how;
    scale_experiment *experiment;
    descent_depth *depths; /* [n_depths] */
    sweep_pool pool;
    rapl meter;
    double began;
    size_t in_flight, tokens_in_flight; /* sweeps, and what they hold */
    progress bar;
    descent_status status; /* of what failed first */
} runner;

/* An input on its way, its sweeps [n] with measures behind one another. */
typedef struct task {
    size_t input, n, left;
    bool broken; /* one of the sweeps has no measures */
    pooled_sweep *sweeps;
    descent_measure *measures;
} task;

static int no_memory(void)
{
    cli_error("no memory left");
    return EXIT_FAILURE;
}

/* ---- Sweeps of an input ------------------------------------------------------------------------------------------ */

static void task_free(task *t)
{
    if (!t) return;
    free(t->sweeps);
    free(t->measures);
    free(t);
}

static task *task_make(size_t input, size_t n, size_t n_depths)
{
    task *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    *t = (task){.input = input, .n = n, .left = n, .sweeps = calloc(n, sizeof *t->sweeps)};
    t->measures = calloc(n * n_depths, sizeof *t->measures);
    if (t->sweeps && t->measures) {
        for (size_t i = 0; i < n; i++) t->sweeps[i] = (pooled_sweep){.owner = t, .measures = t->measures + i * n_depths};
        return t;
    }
    task_free(t);
    return NULL;
}

/* What all sweeps have in common. Texts meet no prefix again; choices share their prompt. */
static descent_sweep_options sweep_of(const runner *r, const uint32_t *tokens, size_t count, size_t first)
{
    return (descent_sweep_options){
        .tokens = tokens,
        .count = count,
        .first = first,
        .depths = r->depths,
        .n_depths = r->experiment->n_depths,
        .how = {.motion = r->with->motion, .solver = r->with->solver, .exit = r->with->exit, .history = r->with->history},
        .energy = true,
        .convergence = true,
        .threshold = (float)r->how->threshold};
}

static task *task_of(const runner *r, size_t input)
{
    const scale_input *of = &r->data->inputs[input];
    const question *asked = of->question;
    task *t = task_make(input, asked ? asked->n_choices : 1, r->experiment->n_depths);
    for (size_t i = 0; t && i < t->n; i++)
        t->sweeps[i].options = asked ? sweep_of(r, asked->choices[i].tokens, asked->choices[i].count, asked->scored)
                                     : sweep_of(r, of->tokens, of->count, 1);
    if (t && !asked) t->sweeps[0].options.how.no_sharing = true;
    return t;
}

/* Whether a sweep that is over has no measures; the first failure is kept. */
static bool has_failed(runner *r, const pooled_sweep *sweep)
{
    if (sweep->end == DESCENT_END_FAILED && r->status.code == DESCENT_OK) r->status = sweep->status;
    return sweep->end != DESCENT_END_LENGTH;
}

/* ---- Readings ---------------------------------------------------------------------------------------------------- */

/* Mean power since the run began; NaN where nobody counts it. */
static double watts(runner *r)
{
    double seconds = seconds_now() - r->began;
    return seconds > 0 ? rapl_joules(&r->meter) / seconds : NAN;
}

static scale_reading *readings_of(const runner *r, size_t input)
{
    return r->experiment->readings + input * r->experiment->n_depths;
}

static int finish_input(runner *r, size_t input)
{
    scale_experiment *e = r->experiment;
    e->documents[input] = r->data->inputs[input].document;
    e->done[input] = true;
    e->n_done++;
    return r->how->log ? scale_log_write(r->how->log, r->how->log_path, e, input) : EXIT_SUCCESS;
}

/* Row steps that an input's sweeps take, for the progress bar. */
static uint64_t steps_of(const runner *r, size_t input)
{
    const scale_input *of = &r->data->inputs[input];
    size_t n = of->question ? of->question->n_choices : 1;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += descent_sweep_steps(r->with->model, r->depths, r->experiment->n_depths, &r->with->history,
                                   (of->question ? of->question->choices[i].count : of->count) - 1);
    return sum;
}

static int finish_task(runner *r, task *t)
{
    const question *asked = r->data->inputs[t->input].question;
    const size_t n_depths = r->experiment->n_depths;
    double power = watts(r);
    bool shared = false;
    for (size_t i = 0; i < t->n; i++) shared = shared || t->sweeps[i].shared;
    for (size_t d = 0; d < n_depths; d++) {
        scale_reading *into = readings_of(r, t->input) + d;
        *into = (scale_reading){.measure = t->measures[d]};
        if (asked) {
            descent_measure choices[QUESTION_MOST_CHOICES];
            bool by_bytes;
            for (size_t i = 0; i < t->n; i++) choices[i] = t->measures[i * n_depths + d];
            into->measure = question_measure(asked, choices, &by_bytes);
            into->right_by_bytes = by_bytes;
        }
        if (shared) into->measure.seconds = NAN;
        into->joules = into->measure.seconds * power;
    }
    progress_advance(&r->bar, steps_of(r, t->input));
    return finish_input(r, t->input);
}

/* ---- Texts and choices -------------------------------------------------------------------------------------------- */

/* The next input of the shard from *next on that is not done; n_inputs where there is none. */
static size_t next_input(const runner *r, size_t *next)
{
    size_t input = *next;
    while (input < r->experiment->n_inputs && r->experiment->done[input]) input += r->how->of;
    *next = input < r->experiment->n_inputs ? input + r->how->of : input;
    return input;
}

/* The task's sweeps. Where one is refused, those before it come back as others do. */
static int submit(runner *r, task *t)
{
    for (size_t i = 0; i < t->n; i++)
        if (sweep_pool_submit(&r->pool, &t->sweeps[i], &r->status) == DESCENT_OK) {
            r->in_flight++;
            r->tokens_in_flight += t->sweeps[i].options.count;
        } else {
            t->left = i;
            t->broken = true;
            return EXIT_FAILURE;
        }
    return EXIT_SUCCESS;
}

/* Begins tasks while there is work in flight for less than two batches: what is more would only wait, or share the batches'
 * rows with the others, so that all would be finished late, and a run that breaks off would lose them all. */
static int begin_tasks(runner *r, size_t *next)
{
    size_t input;
    while (r->in_flight < SWEEPS_AT_ONCE && r->tokens_in_flight < 2 * r->with->rows &&
           (input = next_input(r, next)) < r->experiment->n_inputs) {
        task *t = task_of(r, input);
        if (!t) return no_memory();
        int exit_code = submit(r, t);
        if (!t->left) task_free(t);
        if (exit_code != EXIT_SUCCESS) return exit_code;
    }
    return EXIT_SUCCESS;
}

/* A sweep that is over; with the last one of its task the input is finished. */
static int take_sweep(runner *r, const pooled_sweep *sweep)
{
    task *t = sweep->owner;
    r->in_flight--;
    r->tokens_in_flight -= sweep->options.count;
    if (has_failed(r, sweep)) t->broken = true;
    int exit_code = sweep->end == DESCENT_END_FAILED ? EXIT_FAILURE : EXIT_SUCCESS;
    if (--t->left) return exit_code;
    if (!t->broken) exit_code = finish_task(r, t);
    task_free(t);
    return exit_code;
}

/* After a failure or Ctrl-C nothing is begun any more, and what is in flight is cancelled. */
static int run_sweeps(runner *r)
{
    int exit_code = EXIT_SUCCESS;
    bool stopped = false;
    size_t next = r->how->first;
    for (;;) {
        if (!stopped) exit_code = begin_tasks(r, &next);
        if (!r->in_flight) return exit_code;
        const pooled_sweep *sweep = sweep_pool_next(&r->pool);
        if (sweep && take_sweep(r, sweep) != EXIT_SUCCESS) exit_code = EXIT_FAILURE;
        if (!stopped && (exit_code != EXIT_SUCCESS || interrupted())) {
            sweep_pool_cancel(&r->pool);
            stopped = true;
        }
    }
}

/* ---- Answers ------------------------------------------------------------------------------------------------------ */

/* A group of questions at one depth: what they were answered, and the sweeps over prompts and answers. */
typedef struct group {
    size_t inputs[ANSWERS_AT_ONCE];
    const question *questions[ANSWERS_AT_ONCE];
    size_t n;
    uint64_t first_group; /* of pages, which a prompt's generation and its sweep share */
    answer answers[ANSWERS_AT_ONCE];
    uint32_t *tokens[ANSWERS_AT_ONCE]; /* [context + 1] */
    pooled_sweep sweeps[ANSWERS_AT_ONCE];
    descent_measure measures[ANSWERS_AT_ONCE];
} group;

/* Prompt and answer as one text. One that ended before it had chosen anything is followed by some token: nothing is read of how
 * well it is predicted. */
static size_t text_of(group *g, size_t i)
{
    const question *asked = g->questions[i];
    const answer *given = &g->answers[i];
    memcpy(g->tokens[i], asked->prompt, asked->prompt_count * sizeof *asked->prompt);
    g->tokens[i][asked->prompt_count] = 0;
    memcpy(g->tokens[i] + asked->prompt_count, given->tokens, given->count * sizeof *given->tokens);
    return asked->prompt_count + (given->count ? given->count : 1);
}

static int sweep_answers(runner *r, group *g, size_t d)
{
    int exit_code = EXIT_SUCCESS;
    size_t in_flight = 0;
    for (; in_flight < g->n && exit_code == EXIT_SUCCESS; in_flight++) {
        pooled_sweep *sweep = &g->sweeps[in_flight];
        size_t count = text_of(g, in_flight);
        *sweep = (pooled_sweep){.options = sweep_of(r, g->tokens[in_flight], count, g->questions[in_flight]->prompt_count),
                                .measures = &g->measures[in_flight]};
        sweep->options.depths = &r->depths[d];
        sweep->options.n_depths = 1;
        sweep->options.how.share_group = g->first_group + in_flight;
        if (sweep_pool_submit(&r->pool, sweep, &r->status) != DESCENT_OK) exit_code = EXIT_FAILURE;
    }
    if (exit_code != EXIT_SUCCESS) in_flight--; /* the one that was refused */
    for (bool stopped = false; in_flight;) {
        if (!stopped && (exit_code != EXIT_SUCCESS || interrupted())) {
            sweep_pool_cancel(&r->pool);
            stopped = true;
        }
        const pooled_sweep *sweep = sweep_pool_next(&r->pool);
        if (!sweep) continue;
        in_flight--;
        if (has_failed(r, sweep)) exit_code = EXIT_FAILURE;
    }
    return exit_code;
}

/* What the answers took is theirs by their row steps; the sweeps took their own time, which counts for nothing. */
static void read_answers(runner *r, const group *g, size_t d, double seconds)
{
    uint64_t steps = 0;
    double power = watts(r);
    for (size_t i = 0; i < g->n; i++) steps += g->answers[i].row_steps;
    for (size_t i = 0; i < g->n; i++) {
        scale_reading *into = readings_of(r, g->inputs[i]) + d;
        descent_measure *m = &into->measure;
        *m = g->measures[i];
        if (g->answers[i].code != DESCENT_OK) {
            m->code = DESCENT_DIVERGED;
            m->energy = m->relative_change = NAN;
            m->converged = 0;
        }
        m->items = 1;
        m->right = g->answers[i].right;
        m->nats = NAN; /* of its own greedy text: nobody's loss */
        m->seconds = steps ? seconds * (double)g->answers[i].row_steps / (double)steps : 0;
        into->joules = m->seconds * power;
    }
}

static int answer_depth(runner *r, group *g, size_t d)
{
    const descent_sequence_options how = {.depth = r->depths[d],
                                          .motion = r->with->motion,
                                          .solver = r->with->solver,
                                          .exit = r->with->exit,
                                          .history = r->with->history};
    double began = seconds_now();
    int exit_code = answer_questions(r->with, g->questions, g->n, &how, g->first_group, g->answers);
    double seconds = seconds_now() - began;
    if (exit_code != EXIT_SUCCESS || interrupted()) return exit_code;
    exit_code = sweep_answers(r, g, d);
    if (exit_code != EXIT_SUCCESS || interrupted()) return exit_code;
    read_answers(r, g, d, seconds);
    g->first_group += g->n;
    progress_advance(&r->bar, g->n);
    return EXIT_SUCCESS;
}

static int run_group(runner *r, group *g)
{
    for (size_t d = 0; d < r->experiment->n_depths; d++) {
        int exit_code = answer_depth(r, g, d);
        if (exit_code != EXIT_SUCCESS || interrupted()) return exit_code;
    }
    for (size_t i = 0; i < g->n; i++) {
        int exit_code = finish_input(r, g->inputs[i]);
        if (exit_code != EXIT_SUCCESS) return exit_code;
    }
    return EXIT_SUCCESS;
}

static bool fill_group(const runner *r, size_t *next, group *g)
{
    size_t input;
    for (g->n = 0; g->n < ANSWERS_AT_ONCE && (input = next_input(r, next)) < r->experiment->n_inputs; g->n++) {
        g->inputs[g->n] = input;
        g->questions[g->n] = r->data->inputs[input].question;
    }
    return g->n > 0;
}

static int run_answers(runner *r)
{
    group *g = calloc(1, sizeof *g);
    uint32_t *tokens = calloc(ANSWERS_AT_ONCE * ((size_t)r->with->info->context + 1), sizeof *tokens);
    int exit_code = g && tokens ? EXIT_SUCCESS : no_memory();
    size_t next = r->how->first;
    for (size_t i = 0; g && tokens && i < ANSWERS_AT_ONCE; i++)
        g->tokens[i] = tokens + i * ((size_t)r->with->info->context + 1);
    if (g) g->first_group = 1;
    while (exit_code == EXIT_SUCCESS && !interrupted() && fill_group(r, &next, g)) exit_code = run_group(r, g);
    free(tokens);
    free(g);
    return exit_code;
}

/* ---- The run ------------------------------------------------------------------------------------------------------ */

static progress begin_progress(const runner *r)
{
    size_t next = r->how->first, input;
    uint64_t total = 0;
    bool answers = r->data->kind == SCALE_ANSWERS;
    while ((input = next_input(r, &next)) < r->experiment->n_inputs)
        total += answers ? r->experiment->n_depths : steps_of(r, input);
    return progress_begin("scale", answers ? "answers" : "row steps", total);
}

int scale_run(const session *with, const scale_data *data, const scale_how *how, scale_experiment *experiment)
{
    runner r = {.with = with, .data = data, .how = how, .experiment = experiment, .began = seconds_now()};
    r.depths = calloc(experiment->n_depths, sizeof *r.depths);
    if (!r.depths) return no_memory();
    for (size_t d = 0; d < experiment->n_depths; d++) r.depths[d] = experiment->depths[d].depth;
    rapl_open(&r.meter, NULL);
    sweep_pool_open(&r.pool, with->scheduler);
    r.bar = begin_progress(&r);
    int exit_code = data->kind == SCALE_ANSWERS ? run_answers(&r) : run_sweeps(&r);
    progress_end(&r.bar);
    if (r.status.code != DESCENT_OK) cli_error("%s", r.status.message);
    sweep_pool_close(&r.pool);
    rapl_close(&r.meter);
    free(r.depths);
    return exit_code == EXIT_SUCCESS && interrupted() ? EXIT_INTERRUPTED : exit_code;
}
