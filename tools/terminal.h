/* terminal.h: what the commands know of the other end: whether a person sits there, how wide the window is, whether
 * colours are welcome; the progress bar; output whose errors are noticed; Ctrl-C. */
#ifndef DESCENT_TOOLS_TERMINAL_H
#define DESCENT_TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

bool terminal_is(FILE *stream);
/* Columns; 100 where the stream is no terminal or does not say. */
int terminal_width(FILE *stream);

typedef enum terminal_style { STYLE_PLAIN, STYLE_DIM, STYLE_BOLD, STYLE_RED, STYLE_GREEN } terminal_style;

/* The escape sequence that begins a style, STYLE_PLAIN to end it: "" where the stream is no terminal, NO_COLOR is set or
 * TERM is dumb. */
const char *terminal_style_on(FILE *stream, terminal_style style);

double seconds_now(void); /* monotonic */

/* ---- Output ---------------------------------------------------------------------------------------------------- */

/* Called once, before anything is written. */
void output_open(void);

/* Sends what was written to stdout on its way. False once a write has failed: there is nobody to go on for. */
bool output_flush(void);

/* The same, at the end: the exit code that is left. A reader that went away (a closed pipe) is not our failure; any other
 * error is, with a message on stderr. main returns through it. */
int output_close(int exit_code);

/* ---- Progress --------------------------------------------------------------------------------------------------- */

/* A bar on stderr with rate and remaining time, drawn only where stderr is a terminal, at most ten times a second. */
typedef struct progress {
    const char *label, *unit;
    uint64_t total, done;
    double started, drawn;
    bool shown;
} progress;

progress progress_begin(const char *label, const char *unit, uint64_t total);
void progress_advance(progress *bar, uint64_t by);
/* Wipes the bar: nothing of it stays in the window. */
void progress_end(progress *bar);

/* Text in one line: line ends and other control characters escaped. */
void terminal_put_text(const char *text, size_t bytes, FILE *to);

/* ---- Interruption ------------------------------------------------------------------------------------------------ */

/* From now on the first Ctrl-C (or SIGTERM) is remembered and the second ends the process at once. */
void interruption_watch(void);
bool interrupted(void);
/* Forgets a Ctrl-C that has been answered. SIGTERM stays: it means the whole program. */
void interruption_clear(void);
/* Waits until `stream` has something to read. False when Ctrl-C came first, even just before the call. */
bool interruption_or_input(FILE *stream);

#endif
