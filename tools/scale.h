/* scale.h: between the parts of `descent scale`, which measures what T buys:
 *
 *     scale_inputs.c  files -> inputs, a window of a text or a question each
 *     scale_run.c     inputs -> readings, one an input and depth, on a scheduler
 *     scale_log.c     readings <-> the file of --resume, of which --merge makes one experiment
 *     scale_result.c  readings -> rows, one a depth, with intervals
 *     scale_show.c, scale_svg.c   rows -> table, JSON, CSV; pictures
 *
 * scale.c reads the options and calls them in this order. A function that fails has said why on stderr; its result is the exit
 * code. */
#ifndef DESCENT_TOOLS_SCALE_H
#define DESCENT_TOOLS_SCALE_H

#include "answers.h"
#include "input.h"
#include "session.h"

#include <jansson.h>

typedef enum scale_kind { SCALE_TEXTS, SCALE_ANSWERS, SCALE_CHOICES } scale_kind;

extern const char *const scale_kind_names[]; /* "texts", "answers", "choices", NULL */

/* ---- Inputs ----------------------------------------------------------------------------------------------------- */

typedef struct scale_input {
    const uint32_t *tokens;   /* of a text: a window, and the token after it */
    size_t count;             /* of them */
    const question *question; /* NULL in a text */
    uint64_t document;        /* the text it is of; a question is its own */
} scale_input;

typedef struct scale_data {
    scale_kind kind;
    char name[128]; /* of the file, or how many there are */
    scale_input *inputs;
    size_t n_inputs, n_documents;
    uint64_t hash; /* of all tokens and answers in their order */
    uint32_t **texts;
    size_t n_texts;
    question_set questions;
} scale_data;

typedef struct scale_files {
    cli_list texts, lists; /* plain texts, and JSON Lines of {"text": ...} */
    const char *questions; /* or this */
    bool parse_special;    /* in texts */
} scale_files;

/* Released with scale_data_release in any case. */
int scale_read(const session *with, const scale_files *files, scale_data *data);
void scale_data_release(scale_data *data);

/* ---- The experiment ---------------------------------------------------------------------------------------------- */

/* One input at one depth. */
typedef struct scale_reading {
    descent_measure measure;
    uint64_t right_by_bytes; /* of choices: right by the likelihood per byte */
    double joules;           /* NaN where nobody counts them */
} scale_reading;

typedef struct scale_experiment {
    json_t *setup; /* what it is of and how it is measured: the first line of a --resume file */
    scale_kind kind;
    asked_depth *depths; /* rising, each once */
    size_t n_depths;
    int trained; /* the index of the trained depth, or -1 */
    size_t n_inputs, n_documents, n_done;
    uint64_t *documents;     /* [n_inputs] */
    bool *done;              /* [n_inputs] */
    scale_reading *readings; /* [n_inputs][n_depths] */
} scale_experiment;

enum { SCALE_LOG_VERSION = 1 }; /* "descent_scale" in the first line of --resume's files */
enum { SCALE_MOST_READINGS = 1 << 22 /* their log is then below 1 GiB, which is as much as is read again */ };

/* Takes memory for the readings of n_inputs and n_depths, which are set. */
int scale_experiment_make_room(scale_experiment *experiment);
void scale_experiment_release(scale_experiment *experiment);

/* ---- The log: the file of --resume -------------------------------------------------------------------------------
 *
 * JSON Lines. The first is the setup; each further one an input that is finished, its readings as lists of the numbers that
 * the setup's `fields` names, which come back bit for bit. A last line that was torn by the end of its process is dropped. */

/* Opens or begins the file; what it holds is taken into the experiment. It must have the experiment's own setup. */
int scale_log_open(const char *path, scale_experiment *experiment, FILE **log);
int scale_log_write(FILE *log, const char *path, const scale_experiment *experiment, size_t input);
/* The experiment that the files are parts of: every input must be in exactly one. */
int scale_log_merge(const char *const *paths, size_t n, scale_experiment *experiment);
/* Names of the numbers of a reading, for the setup. */
json_t *scale_log_fields(void);

/* ---- Running ------------------------------------------------------------------------------------------------------ */

typedef struct scale_how {
    double threshold;   /* of r, below which a token has converged */
    uint64_t first, of; /* the inputs `first`, first + of, ...: the shard */
    const char *log_path;
    FILE *log; /* NULL: none */
} scale_how;

/* Measures the inputs that are not done, on the session's scheduler. EXIT_INTERRUPTED after Ctrl-C: what is done stays. */
int scale_run(const session *with, const scale_data *data, const scale_how *how, scale_experiment *experiment);

/* ---- Results ------------------------------------------------------------------------------------------------------ */

typedef enum scale_units { SCALE_UNITS_BY_RULE, SCALE_UNITS_WINDOWS, SCALE_UNITS_DOCUMENTS } scale_units;

typedef struct scale_result {
    const scale_experiment *of;
    descent_scaling_row *rows;     /* [n_depths] */
    descent_scaling_row *by_bytes; /* the same by the likelihood per byte; NULL where there are no choices */
    double *joules;                /* [n_depths] */
    const char *units;             /* what was drawn: "windows", "documents" or "questions" */
    size_t n_units;
    uint32_t resamples;
    double level;
} scale_result;

/* Of the inputs that are done, at least one. */
int scale_summarize(const scale_experiment *experiment, scale_units units, int64_t resamples, scale_result *result);
void scale_result_release(scale_result *result);

/* A text as one printable line; returns out. The second: of the setup, "?" where it has none. */
const char *scale_printable(const char *text, char *out, size_t size);
const char *scale_text(const scale_experiment *experiment, const char *key, char *out, size_t size);
/* What the experiment is about first of all. */
descent_metric scale_main_metric(const scale_experiment *experiment);

void scale_show_table(const scale_result *result);
int scale_show_json(const scale_result *result);
int scale_write_csv(const scale_result *result, const char *path);

/* ---- Pictures ----------------------------------------------------------------------------------------------------- */

typedef struct scale_picture {
    const char *title; /* NULL: model and data */
    int64_t low, high; /* depths the model was trained over; 0: up to the trained one */
} scale_picture;

/* A curve over T, or a map where the depths are a grid of attention x MLP. */
int scale_write_svg(const scale_result *result, const scale_picture *picture, const char *path);

#endif
