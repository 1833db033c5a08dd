/* bench.h: `descent bench MODEL`: what a model takes on this machine, line by line, beside what the machine could do.
 *
 *     bench.c          the command: options, which lines, the order
 *     bench_lines.c    measuring a line
 *     bench_drafts.c   the line of drafts, through the scheduler
 *     bench_texts.c    texts that stand at a context
 *     bench_products.c products on their own, of every type
 *     bench_machine.c  the machine's own figures, with the loops of bench_loops.c
 *     bench_report.c   table and JSON
 *     bench_serve.c    the other benchmark, `descent bench serve` (bench_load.h)
 */
#ifndef DESCENT_TOOLS_BENCH_H
#define DESCENT_TOOLS_BENCH_H

#include "bench_load.h"
#include "bench_machine.h"
#include "bench_texts.h"
#include "descent.h"
#include "session.h"
#include "terminal.h"

typedef enum line_kind {
    LINE_PREFILL,   /* a prompt of `context` tokens, and the logits of its last */
    LINE_DECODE,    /* `batch` texts, a token each at `context`, all at one T */
    LINE_MIXED,     /* the same at T/2, T and 2T in turn */
    LINE_SWEEP,     /* `context` tokens read at T = 1 .. 32; beside it the 32 steps and 32 heads, and the steps alone */
    LINE_DEEPENING, /* `context` tokens taken from T to 2T; beside it the same from nothing */
    LINE_LATENCY,   /* a token at T = 4 while every other text goes to 32; beside it all at 4 */
    LINE_DRAFTS,    /* texts of one stream with drafts; beside them the same without */
    LINE_KINDS
} line_kind;

extern const char *const line_names[]; /* [LINE_KINDS], NULL-terminated */

/* What one repetition costs by the shapes, and the least time that leaves. */
typedef struct line_work {
    uint64_t weights, attention, head;     /* multiply-adds */
    uint64_t saved;                        /* of `weights`, by the form that is cheaper for prompts */
    uint64_t of_bytes, saved_of_bytes;     /* of `weights` and `head`, and of `saved`: with matrices of quantized types */
    uint64_t product_bytes;                /* of weights, head included, once for every product */
    uint64_t weight_bytes, history_bytes;  /* traffic: every matrix once a step, every history once a token's step */
    double weight_seconds, memory_seconds; /* the traffic of weights, and all, at the bandwidths of the working sets */
    double compute_seconds, cheaper_form_seconds; /* the multiply-adds at the peaks of their types */
} line_work;

enum { LINE_BESIDES = 2 };

typedef struct bench_line {
    line_kind kind;
    size_t context, batch;
    asked_depth depths[3];
    size_t n_depths;
    run_counts counts;          /* of one repetition */
    uint64_t drafted, accepted; /* of all */
    line_work work;
    load_samples seconds; /* one a repetition; of a latency one a token */
    struct {
        const char *name; /* NULL: none */
        load_samples seconds;
    } beside[LINE_BESIDES];
} bench_line;

/* How much of the machine the model holds when it has made its first token. */
typedef struct bench_memory {
    uint64_t resident, resident_before; /* of the process, now and before the model was opened */
    uint64_t file, cache;
} bench_memory;

/* One matrix a thread, multiplied by itself: W x and W^T u. */
typedef struct bench_product {
    const char *type, *scales;     /* scales NULL: the type has one layout */
    const char *set;               /* "L2", "L3", "memory": what the matrices of all threads lie in */
    uint64_t bytes, multiply_adds; /* of all threads' */
    uint32_t vectors;
    double read;       /* seconds that reading so many bytes takes, */
    double seconds[2]; /* and a product of each thread: W x, W^T u; each the best of several tries in turn */
    double peak;       /* multiply-adds/s of bytes, or of floats where the type is of floats */
} bench_product;

typedef struct bench_run {
    const char *path;
    session with;
    asked_depth depth; /* T: the trained depth, or the one asked for */
    int threads;
    int64_t repeats;
    double seconds;         /* about how long a repetition takes, at least */
    double machine_seconds; /* the same of a measurement of the machine */
    bool has_depth;         /* the model has a T */
    descent_model_cost cost;
    machine machine;
    bool has_memory;
    bench_memory memory;
    bench_line *lines;
    size_t n_lines;
    bench_product *products; /* [n_products] of NULL or more room */
    size_t n_products;
} bench_run;

/* Measures a line. EXIT_SUCCESS, EXIT_INTERRUPTED, or another exit code after a message. */
int line_measure(bench_run *b, bench_line *line, progress *bar);
int drafts_measure(bench_run *b, bench_line *line, progress *bar); /* one of LINE_DRAFTS */

void line_release(bench_line *line);

/* What the model holds once a text of `context` tokens has got one more. */
int memory_measure(bench_run *b, size_t context);
uint64_t memory_resident(void); /* 0 where the system does not say */

/* The most bytes that products read. `quick`: from the second cache level only. */
size_t products_largest(int threads, bool quick);
/* EXIT_SUCCESS, EXIT_INTERRUPTED, or another exit code after a message. */
int products_measure(bench_run *b, bool quick);

/* seconds over the line's besides: NaN where there is none. */
double line_ratio(bench_line *line, size_t which);
/* The limit's share of the time measured, in (0, 1] but for noise. */
double line_fraction(bench_line *line);
double line_limit(const bench_line *line);

int report_text(bench_run *b);
int report_json(bench_run *b);

/* `descent bench serve`: argv[0] is "serve". */
int bench_serve_command(int argc, char **argv);

#endif
