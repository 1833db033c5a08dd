/* text_stream.c: see text_stream.h. Two things wait in a stream: decoded text that may yet be the beginning of a stop string,
 * and tokens whose text is not all out. Called by transcript.c on a scheduler's thread.
 *
 *     token -> decoder (whole characters) -> stop strings, byte by byte -> held text -> released text
 *
 * Offsets count the bytes of the text from where pushing began. Each stop string is followed by Knuth, Morris and Pratt's
 * method, so that a byte costs a bounded number of steps however the text repeats itself. */
#include "text_stream.h"

#include "grow.h"

#include <stdlib.h>
#include <string.h>

/* A stop string and how much of it the text ends with. */
typedef struct watch {
    const stop_string *stop;
    uint32_t *shorter; /* [bytes] of the first i + 1 bytes: the longest beginning that is an end of them too, and not all */
    size_t matched;
} watch;

struct text_stream {
    descent_decoder *decoder;
    watch *watches; /* [n_watches] */
    size_t n_watches;

    char *held; /* [held_bytes] text at `released` and behind, not let go of */
    size_t held_bytes, held_room;
    size_t released; /* offset up to which text is out */
    char *out;       /* what the last release points to */
    size_t out_room;

    size_t unfinished; /* of a text without stop strings: tokens at its end that end inside a character */
    size_t *ends;      /* [n_ends] of tokens not released: the offset up to which text must be out for the token to be */
    size_t n_ends, ends_room;
    bool stopped;
};

/* ---- Stop strings ------------------------------------------------------------------------------------------------ */

/* How much of the stop string the text ends with after one more byte. */
static size_t advance(const stop_string *stop, const uint32_t *shorter, size_t matched, char byte)
{
    while (matched > 0 && stop->text[matched] != byte) matched = shorter[matched - 1];
    return stop->text[matched] == byte ? matched + 1 : 0;
}

static bool watch_open(watch *w, const stop_string *stop)
{
    w->stop = stop;
    w->shorter = calloc(stop->bytes, sizeof *w->shorter);
    for (size_t i = 1; w->shorter && i < stop->bytes; i++)
        w->shorter[i] = (uint32_t)advance(stop, w->shorter, w->shorter[i - 1], stop->text[i]);
    return w->shorter != NULL;
}

/* Reads the held text from `from` on, up to the first byte that completes a stop string. True where one does: *bytes is then
 * what stands before the longest that ends there; else before the longest that may have begun. */
static bool find_stop(text_stream *s, size_t from, size_t *bytes)
{
    size_t longest = 0;
    for (size_t at = from; at < s->held_bytes; at++) {
        bool complete = false;
        for (size_t i = 0; i < s->n_watches; i++) {
            watch *w = &s->watches[i];
            w->matched = advance(w->stop, w->shorter, w->matched, s->held[at]);
            if (w->matched < w->stop->bytes) continue;
            if (w->matched > longest) longest = w->matched;
            complete = true;
        }
        if (!complete) continue;
        *bytes = at + 1 - longest;
        return true;
    }
    for (size_t i = 0; i < s->n_watches; i++)
        if (s->watches[i].matched > longest) longest = s->watches[i].matched;
    *bytes = s->held_bytes - longest;
    return false;
}

/* ---- The stream -------------------------------------------------------------------------------------------------- */

static descent_code no_memory(descent_status *status)
{
    if (status) *status = (descent_status){.code = DESCENT_NO_MEMORY, .message = "no memory for a stream of text"};
    return DESCENT_NO_MEMORY;
}

descent_code text_stream_create(const descent_tokenizer *tokenizer, const stop_string *stop, size_t n_stop,
                                text_stream **stream, descent_status *status)
{
    text_stream *s = calloc(1, sizeof *s);
    if (!s) return no_memory(status);
    descent_code code = descent_decoder_create(tokenizer, &s->decoder, status);
    s->watches = calloc(n_stop ? n_stop : 1, sizeof *s->watches);
    if (code == DESCENT_OK && !s->watches) code = no_memory(status);
    for (; code == DESCENT_OK && s->n_watches < n_stop; s->n_watches++)
        if (!watch_open(&s->watches[s->n_watches], &stop[s->n_watches])) code = no_memory(status);
    if (code != DESCENT_OK) {
        text_stream_destroy(s);
        return code;
    }
    *stream = s;
    return DESCENT_OK;
}

void text_stream_destroy(text_stream *s)
{
    if (!s) return;
    descent_decoder_destroy(s->decoder);
    for (size_t i = 0; i < s->n_watches; i++) free(s->watches[i].shorter);
    free(s->watches);
    free(s->held);
    free(s->out);
    free(s->ends);
    free(s);
}

void text_stream_follow(text_stream *s, const uint32_t *tokens, size_t count)
{
    size_t bytes;
    for (size_t i = 0; i < count; i++) (void)descent_decoder_push(s->decoder, tokens[i], &bytes);
}

/* Lets go of the first `bytes` of the held text, and of the tokens whose text is out with them. */
static void let_go(text_stream *s, size_t bytes, text_release *release)
{
    size_t tokens = 0;
    memcpy(s->out, s->held, bytes);
    s->out[bytes] = '\0';
    s->held_bytes -= bytes;
    memmove(s->held, s->held + bytes, s->held_bytes);
    s->released += bytes;
    while (tokens < s->n_ends && s->ends[tokens] <= s->released) tokens++;
    s->n_ends -= tokens;
    memmove(s->ends, s->ends + tokens, s->n_ends * sizeof *s->ends);
    *release = (text_release){.text = s->out, .bytes = bytes, .tokens = tokens, .stopped = s->stopped};
}

/* Takes what the decoder gave for a token, or at the end. */
static bool take(text_stream *s, const char *text, size_t bytes, bool token)
{
    size_t total = s->held_bytes + bytes;
    if (!text || !grow(&s->held, 0, total + 1, &s->held_room, 1) || !grow(&s->out, 0, total + 1, &s->out_room, 1) ||
        !grow(&s->ends, s->n_ends, 1, &s->ends_room, sizeof *s->ends))
        return false;
    memcpy(s->held + s->held_bytes, text, bytes);
    s->held_bytes = total;
    /* A token that ends inside a character goes with that character, which comes next. */
    if (token) s->ends[s->n_ends++] = s->released + total + (descent_decoder_held(s->decoder) > 0 ? 1 : 0);
    return true;
}

/* Where there are no stop strings nothing is held but, by the decoder, half a character: what it gives goes on as it is, with
 * the tokens whose characters are whole. */
static void pass(text_stream *s, const char *text, size_t bytes, size_t tokens, text_release *release)
{
    bool inside = descent_decoder_held(s->decoder) > 0;
    size_t own = inside ? tokens : 0, whole = s->unfinished + tokens - own;
    if (bytes == 0 && (inside || s->unfinished > 0)) whole = 0;
    *release = (text_release){.text = text, .bytes = bytes, .tokens = whole};
    s->unfinished += tokens - whole;
}

descent_code text_stream_push(text_stream *s, uint32_t token, text_release *release, descent_status *status)
{
    size_t bytes, before = s->held_bytes, free_bytes;
    *release = (text_release){.text = "", .stopped = s->stopped};
    if (s->stopped) return DESCENT_OK;
    const char *text = descent_decoder_push(s->decoder, token, &bytes);
    if (text && s->n_watches == 0) {
        pass(s, text, bytes, 1, release);
        return DESCENT_OK;
    }
    if (!take(s, text, bytes, true)) return no_memory(status);
    s->stopped = find_stop(s, before, &free_bytes);
    let_go(s, free_bytes, release);
    return DESCENT_OK;
}

descent_code text_stream_finish(text_stream *s, text_release *release, descent_status *status)
{
    size_t bytes, before = s->held_bytes, free_bytes;
    *release = (text_release){.text = "", .stopped = s->stopped};
    if (s->stopped) return DESCENT_OK;
    const char *text = descent_decoder_finish(s->decoder, &bytes);
    if (text && s->n_watches == 0) {
        pass(s, text, bytes, 0, release);
        return DESCENT_OK;
    }
    if (!take(s, text, bytes, false)) return no_memory(status);
    s->stopped = find_stop(s, before, &free_bytes);
    let_go(s, s->stopped ? free_bytes : s->held_bytes, release);
    return DESCENT_OK;
}
