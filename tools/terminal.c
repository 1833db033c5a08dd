/* terminal.c: see terminal.h. The only process-wide state of the program is here: what signals have come, and how
 * writing to stdout went. */
#include "terminal.h"

#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

bool terminal_is(FILE *stream)
{
    return isatty(fileno(stream)) == 1;
}

int terminal_width(FILE *stream)
{
    struct winsize size;
    if (!terminal_is(stream) || ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 100;
    return size.ws_col;
}

const char *terminal_style_on(FILE *stream, terminal_style style)
{
    static const char *const sequences[] = {"\033[0m", "\033[2m", "\033[1m", "\033[31m", "\033[32m"};
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    if (!terminal_is(stream) || (no_color && *no_color) || (term && !strcmp(term, "dumb"))) return "";
    return sequences[style];
}

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Output ---------------------------------------------------------------------------------------------------- */

/* SIGPIPE is caught, not ignored: stdio keeps only that a write failed, and this tells a reader that left from a full
 * disk. */
static volatile sig_atomic_t reader_left;
static int output_error;

static void on_broken_pipe(int number)
{
    (void)number;
    reader_left = 1;
}

void output_open(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_broken_pipe;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
}

bool output_flush(void)
{
    errno = 0;
    if (fflush(stdout) != 0 && !output_error) output_error = errno;
    return ferror(stdout) == 0;
}

int output_close(int exit_code)
{
    if (output_flush() || reader_left) return exit_code;
    cli_error("cannot write the output%s%s", output_error ? ": " : "", output_error ? strerror(output_error) : "");
    return exit_code == EXIT_SUCCESS ? EXIT_FAILURE : exit_code;
}

/* ---- Progress --------------------------------------------------------------------------------------------------- */

progress progress_begin(const char *label, const char *unit, uint64_t total)
{
    return (progress){.label = label, .unit = unit, .total = total, .started = seconds_now(), .shown = terminal_is(stderr)};
}

static void format_remaining(double seconds, char *text, size_t size)
{
    if (seconds < 100)
        snprintf(text, size, "%.0f s", seconds);
    else if (seconds < 6000)
        snprintf(text, size, "%.0f min", seconds / 60);
    else
        snprintf(text, size, "%.1f h", seconds / 3600);
}

static void draw(progress *bar)
{
    enum { most = 40 };
    char remaining[32], line[most + 1];
    double elapsed = seconds_now() - bar->started;
    double part = bar->total ? (double)bar->done / (double)bar->total : 1;
    int spare = terminal_width(stderr) - 60;
    int cells = spare < 8 ? 8 : spare > most ? most : spare;
    int filled = (int)(part * cells);
    for (int i = 0; i < cells; i++) line[i] = i < filled ? '#' : '.';
    line[cells] = '\0';
    format_remaining(part > 0 ? elapsed / part * (1 - part) : 0, remaining, sizeof remaining);
    fprintf(stderr, "\r\033[K%s [%s] %3.0f%% %.0f %s/s, %s left", bar->label, line, 100 * part,
            elapsed > 0 ? (double)bar->done / elapsed : 0, bar->unit, remaining);
    fflush(stderr);
}

void progress_advance(progress *bar, uint64_t by)
{
    bar->done += by;
    if (!bar->shown) return;
    double now = seconds_now();
    if (now - bar->drawn < 0.1 && bar->done < bar->total) return;
    bar->drawn = now;
    draw(bar);
}

void progress_end(progress *bar)
{
    if (!bar->shown) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    bar->shown = false;
}

void terminal_put_text(const char *text, size_t bytes, FILE *to)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n')
            fputs("\\n", to);
        else if (c < 0x20 || c == 0x7f)
            fprintf(to, "\\x%02x", c);
        else
            fputc(c, to);
    }
}

/* ---- Interruption ------------------------------------------------------------------------------------------------ */

static volatile sig_atomic_t interruptions, terminations;

static void on_signal(int number)
{
    if (interruptions || terminations) _exit(EXIT_INTERRUPTED);
    if (number == SIGTERM)
        terminations = 1;
    else
        interruptions = 1;
}

void interruption_watch(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal; /* without SA_RESTART: a read that waits for a line returns */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool interrupted(void)
{
    return interruptions || terminations;
}

void interruption_clear(void)
{
    interruptions = 0;
}

/* The signals are blocked from the look at the flag until pselect waits, so that none can fall in between. */
bool interruption_or_input(FILE *stream)
{
    sigset_t watched, before;
    fd_set input;
    int ready = -1;
    sigemptyset(&watched);
    sigaddset(&watched, SIGINT);
    sigaddset(&watched, SIGTERM);
    sigprocmask(SIG_BLOCK, &watched, &before);
    while (!interrupted() && ready < 0) {
        FD_ZERO(&input);
        FD_SET(fileno(stream), &input);
        ready = pselect(fileno(stream) + 1, &input, NULL, NULL, NULL, &before);
        if (ready < 0 && errno != EINTR) break;
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !interrupted();
}
