/* log.c: see log.h. A line is put together in a buffer of its own and leaves by one write(2): lines of several threads, and of
 * several processes on one pipe, do not mix. Every text in it is bounded and made printable first, so that no client writes
 * into the log more than one line of at most LINE_MOST bytes, which is what a pipe takes at once.
 */
#include "log.h"

#include "utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MOST = 4096, MESSAGE_MOST = 1024, IGNORED_NAMES = 256 };
enum { WORD_MOST = 32, NAME_MOST = 160, TEXT_MOST = 512 };

typedef struct line {
    char text[LINE_MOST];
    size_t bytes;
} line;

static _Atomic log_format format_now = LOG_JSON;
static const char *const level_names[] = {"info", "warning", "error"};

void log_set_format(log_format format)
{
    atomic_store(&format_now, format);
}

__attribute__((format(printf, 2, 3))) static void put(line *l, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t room = sizeof l->text - 1 - l->bytes; /* the newline has its place */
    int written = vsnprintf(l->text + l->bytes, room, format, arguments);
    va_end(arguments);
    if (written > 0) l->bytes += (size_t)written < room ? (size_t)written : room - 1;
}

/* What a line of every request is made of goes without a format. */
static void put_bytes(line *l, const char *text, size_t bytes)
{
    size_t room = sizeof l->text - 2 - l->bytes;
    if (bytes > room) bytes = room;
    memcpy(l->text + l->bytes, text, bytes);
    l->bytes += bytes;
}

static void put_text(line *l, const char *text)
{
    put_bytes(l, text, strlen(text));
}

/* At least so many digits; none where the line has no room for all. */
static void put_digits(line *l, uint64_t value, size_t least)
{
    size_t count = 1;
    for (uint64_t rest = value / 10; rest > 0; rest /= 10) count++;
    if (count < least) count = least;
    if (count > sizeof l->text - 2 - l->bytes) return;
    for (size_t i = count; i > 0; i--, value /= 10) l->text[l->bytes + i - 1] = (char)('0' + value % 10);
    l->bytes += count;
}

/* ,"key": */
static void put_key(line *l, const char *key)
{
    put_text(l, ",\"");
    put_text(l, key);
    put_text(l, "\":");
}

static void put_count(line *l, const char *key, uint64_t count)
{
    put_key(l, key);
    put_digits(l, count, 1);
}

/* The characters at its begin, fewer than `most`, that stand for themselves in JSON and on a terminal. */
static size_t count_plain(const char *text, size_t most)
{
    size_t n = 0;
    while (n < most && text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\') n++;
    return n;
}

/* Text as one printable line of less than `most` bytes, as a JSON string: at most twice as long. */
static void put_quoted(line *l, const char *text, size_t most)
{
    char printable[MESSAGE_MOST], quoted[2 * MESSAGE_MOST];
    size_t n = count_plain(text, most);
    put_text(l, "\"");
    if (n < most && !text[n]) {
        put_bytes(l, text, n);
    } else {
        n = 0;
        for (const char *c = utf8_printable(text, strnlen(text, 2 * most), printable, most); *c; c++) {
            if (*c == '"' || *c == '\\') quoted[n++] = '\\';
            quoted[n++] = *c;
        }
        put_bytes(l, quoted, n);
    }
    put_text(l, "\"");
}

/* ,"key":"text" where there is a text. The `most` of all fields, doubled, fit into a line with the rest of it. */
static void put_field(line *l, const char *key, const char *text, size_t most)
{
    if (!text) return;
    put_key(l, key);
    put_quoted(l, text, most);
}

/* The same for people: what stands before it, then the text. */
static void put_words(line *l, const char *before, const char *text, size_t most)
{
    char printable[MESSAGE_MOST];
    if (text) put(l, "%s%s", before, utf8_printable(text, strnlen(text, 2 * most), printable, most));
}

static void put_seconds(line *l, const char *key, double seconds)
{
    const uint64_t million = 1000000;
    const double most = 1e12; /* nothing takes so long, and an integer of microseconds holds it */
    bool counts = isfinite(seconds) && seconds > 0;
    uint64_t us = counts ? (uint64_t)llround(fmin(seconds, most) * 1e6) : 0;
    put_count(l, key, us / million);
    put_text(l, ".");
    put_digits(l, us % million, 6);
}

/* 2026-11-30T20:17:32.123Z */
static void put_time(line *l, const struct tm *utc, uint64_t milliseconds)
{
    const int parts[] = {utc->tm_year + 1900, utc->tm_mon + 1, utc->tm_mday, utc->tm_hour, utc->tm_min, utc->tm_sec};
    static const char *const behind[] = {"-", "-", "T", ":", ":", "."};
    for (size_t i = 0; i < 6; i++) {
        put_digits(l, (uint64_t)parts[i], i == 0 ? 4 : 2);
        put_text(l, behind[i]);
    }
    put_digits(l, milliseconds, 3);
    put_text(l, "Z");
}

/* Begins a line: time in UTC, level. */
static void begin(line *l, log_format format, log_level level)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    struct tm utc;
    (void)gmtime_r(&now.tv_sec, &utc);
    const char *name = level_names[level];
    l->bytes = 0;
    uint64_t milliseconds = (uint64_t)now.tv_nsec / 1000000;
    if (format == LOG_JSON) {
        put_text(l, "{\"time\":\"");
        put_time(l, &utc, milliseconds);
        put_text(l, "\"");
        put_field(l, "level", name, WORD_MOST);
    } else {
        put_time(l, &utc, milliseconds);
        put(l, " %-7s", name);
    }
}

/* Standard error may be a pipe whose reader is gone or slow: a line that does not leave is lost, the server goes on. A pipe
 * that can be written to has room for LINE_MOST bytes. */
static void end(line *l, log_format format)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (format == LOG_JSON) put_text(l, "}");
    l->text[l->bytes++] = '\n';
    if (poll(&out, 1, 0) == 0) return;
    for (size_t sent = 0; sent < l->bytes;) {
        ssize_t n = write(STDERR_FILENO, l->text + sent, l->bytes - sent);
        if (n < 0 && errno != EINTR) return;
        if (n > 0) sent += (size_t)n;
    }
}

void log_line(log_level level, const char *format, ...)
{
    char message[MESSAGE_MOST];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    log_format how = atomic_load(&format_now);
    line l;
    begin(&l, how, level);
    if (how == LOG_JSON) {
        put_key(&l, "message");
        put_quoted(&l, message, MESSAGE_MOST);
    } else {
        char printable[MESSAGE_MOST];
        put(&l, " %s", utf8_printable(message, strlen(message), printable, sizeof printable));
    }
    end(&l, how);
}

/* True the first time a name comes, for as many names as there is room for: what clients make up does not fill the log. */
static bool first_time(const char *name)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t seen[IGNORED_NAMES];
    static size_t count;
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    pthread_mutex_lock(&mutex);
    bool first = count < IGNORED_NAMES;
    for (size_t i = 0; i < count && first; i++) first = seen[i] != hash;
    if (first) seen[count++] = hash;
    pthread_mutex_unlock(&mutex);
    return first;
}

static void request_json(line *l, const log_request *r, const char *ignored)
{
    put_field(l, "id", r->id, NAME_MOST);
    put_field(l, "method", r->method, WORD_MOST);
    put_field(l, "path", r->path, TEXT_MOST);
    put_field(l, "peer", r->peer, NAME_MOST);
    put_count(l, "status", r->status);
    put_seconds(l, "seconds", r->seconds);
    if (r->model) {
        put_field(l, "model", r->model, NAME_MOST);
        put_field(l, "steps", r->steps, WORD_MOST);
        put_count(l, "sequences", r->sequences);
        put_count(l, "prompt_tokens", r->prompt_tokens);
        put_count(l, "cached_tokens", r->cached_tokens);
        put_count(l, "generated_tokens", r->generated_tokens);
        put_count(l, "token_steps", r->token_steps);
        put_seconds(l, "queue_seconds", r->queue_seconds);
        put_seconds(l, "compute_seconds", r->compute_seconds);
    }
    put_field(l, "finish", r->finish, WORD_MOST);
    put_field(l, "ignored", ignored, NAME_MOST);
    put_field(l, "error", r->error, TEXT_MOST);
}

static void request_text(line *l, const log_request *r, const char *ignored)
{
    put_words(l, " ", r->method, WORD_MOST);
    put_words(l, " ", r->path, TEXT_MOST);
    put(l, " %u %.3f s", r->status, r->seconds);
    if (r->model) {
        put_words(l, ", ", r->model, NAME_MOST);
        put_words(l, " T ", r->steps, WORD_MOST);
        put(l, ": %" PRIu64 " prompt tokens (%" PRIu64 " cached), %" PRIu64 " generated, %" PRIu64 " token-steps",
            r->prompt_tokens, r->cached_tokens, r->generated_tokens, r->token_steps);
        if (r->sequences > 1) put(l, ", %" PRIu32 " sequences", r->sequences);
        put(l, ", queued %.3f s, computed %.3f s", r->queue_seconds, r->compute_seconds);
    }
    put_words(l, ", ", r->finish, WORD_MOST);
    put_words(l, ", unknown field ", ignored, NAME_MOST);
    put_words(l, ": ", r->error, TEXT_MOST);
    put_words(l, " | ", r->peer, NAME_MOST);
    put_words(l, " ", r->id, NAME_MOST);
}

void log_request_line(const log_request *request)
{
    const char *ignored = request->ignored && first_time(request->ignored) ? request->ignored : NULL;
    bool refused = request->status == 429 || request->status == 503; /* for now: no fault of anybody's */
    log_level level = refused ? LOG_WARNING : request->status >= 500 ? LOG_ERROR : LOG_INFO;
    log_format how = atomic_load(&format_now);
    line l;
    begin(&l, how, level);
    if (how == LOG_JSON)
        request_json(&l, request, ignored);
    else
        request_text(&l, request, ignored);
    end(&l, how);
}
