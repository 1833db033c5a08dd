/* transcript.c: see transcript.h. */
#include "transcript.h"

#include "grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { BYTES_A_TOKEN = 4 };    /* of text, in most vocabularies */
enum { FOLLOWED_TOKENS = 64 }; /* of a prompt's end: more than any character or leading space depends on */

/* ---- Records ----------------------------------------------------------------------------------------------------- */

void record_clear(record *r)
{
    token_trace_free(r->traces);
    r->n_tokens = r->n_top = r->bytes = r->n_pieces = r->n_times = 0;
    r->traces = NULL;
    r->last_trace = NULL;
}

void record_release(record *r)
{
    record_clear(r);
    free(r->tokens);
    free(r->top);
    free(r->text);
    free(r->pieces);
    free(r->times);
    *r = (record){0};
}

bool record_reserve(record *r, size_t tokens)
{
    size_t bytes = tokens * BYTES_A_TOKEN;
    return grow(&r->times, r->n_times, tokens, &r->times_room, sizeof *r->times) &&
           grow(&r->pieces, r->n_pieces, tokens, &r->pieces_room, sizeof *r->pieces) &&
           grow(&r->text, r->bytes, bytes, &r->text_room, 1);
}

const token_logprob *record_top(const record *r, const token_entry *entry)
{
    return entry->n_top > 0 ? &r->top[entry->first_top] : NULL;
}

static bool add_token(record *r, token_entry entry, const token_logprob *top)
{
    if (!grow(&r->tokens, r->n_tokens, 1, &r->tokens_room, sizeof *r->tokens)) return false;
    if (!grow(&r->top, r->n_top, entry.n_top, &r->top_room, sizeof *r->top)) return false;
    entry.first_top = r->n_top;
    if (entry.n_top > 0) memcpy(r->top + r->n_top, top, entry.n_top * sizeof *top);
    r->n_top += entry.n_top;
    r->tokens[r->n_tokens++] = entry;
    return true;
}

static bool add_piece(record *r, const char *text, size_t bytes)
{
    if (!grow(&r->text, r->bytes, bytes, &r->text_room, 1)) return false;
    if (!grow(&r->pieces, r->n_pieces, 1, &r->pieces_room, sizeof *r->pieces)) return false;
    if (bytes > 0) memcpy(r->text + r->bytes, text, bytes);
    r->bytes += bytes;
    r->pieces[r->n_pieces++] = (text_piece){.bytes = r->bytes, .tokens = r->n_tokens};
    return true;
}

/* Moves the first `count` tokens of `from` to the end of `to`. */
static bool move_tokens(record *to, record *from, size_t count)
{
    if (count > from->n_tokens) count = from->n_tokens;
    for (size_t i = 0; i < count; i++)
        if (!add_token(to, from->tokens[i], record_top(from, &from->tokens[i]))) return false;
    if (count == 0) return true;
    size_t top = count < from->n_tokens ? from->tokens[count].first_top : from->n_top;
    memmove(from->tokens, from->tokens + count, (from->n_tokens - count) * sizeof *from->tokens);
    if (from->n_top > top) memmove(from->top, from->top + top, (from->n_top - top) * sizeof *from->top);
    from->n_tokens -= count;
    from->n_top -= top;
    for (size_t i = 0; i < from->n_tokens; i++) from->tokens[i].first_top -= top;
    return true;
}

/* ---- Opening and closing ----------------------------------------------------------------------------------------- */

static const prompt *prompt_of(const transcript *t)
{
    return &t->options.request->prompts[t->options.prompt];
}

static bool scores(const transcript *t)
{
    return t->options.request->logprobs >= 0 || t->options.score || t->options.request->kind == REQUEST_TRACE;
}

bool transcript_reads_prompt(const transcript *t)
{
    const generation_request *request = t->options.request;
    return (request->echo && request->logprobs >= 0) || request->kind == REQUEST_TRACE;
}

static size_t count_code_points(const char *text, size_t bytes)
{
    size_t count = 0;
    for (size_t i = 0; i < bytes; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* True where the token cannot go on with half a character. */
static bool begins_anew(const descent_tokenizer *tokenizer, uint32_t token)
{
    size_t bytes;
    const char *piece = descent_tokenizer_piece(tokenizer, token, &bytes);
    return bytes == 0 || ((unsigned char)piece[0] & 0xC0) != 0x80;
}

/* Of half a character of `held` bytes: the U+FFFD at the start of what came out behind it. */
static size_t count_replaced(const char *text, size_t bytes, size_t held)
{
    static const char replacement[] = "\xef\xbf\xbd";
    size_t count = 0;
    while (count < held && bytes >= 3 * (count + 1) && !memcmp(text + 3 * count, replacement, 3)) count++;
    return count;
}

/* Pushes a token into the decoder that counts; returns where it begins in the text: one that completes a character, where that
 * character is. */
static size_t pass_offset(transcript *t, uint32_t token)
{
    size_t before = t->code_points, bytes;
    if (!t->offsets) return 0;
    size_t held = begins_anew(t->options.request->model->tokenizer, token) ? descent_decoder_held(t->offsets) : 0;
    const char *text = descent_decoder_push(t->offsets, token, &bytes);
    if (!text) return before;
    t->code_points += count_code_points(text, bytes);
    return before + count_replaced(text, bytes, held);
}

/* The text of the prompt, as far as its characters are whole. */
static descent_code open_echo(transcript *t, const descent_tokenizer *tokenizer, descent_status *status)
{
    const prompt *p = prompt_of(t);
    descent_decoder *decoder;
    descent_code code = descent_decoder_create(tokenizer, &decoder, status);
    if (code != DESCENT_OK) return code;
    size_t room = 0;
    for (size_t i = 0; i < p->count && code == DESCENT_OK; i++) {
        size_t bytes;
        const char *text = descent_decoder_push(decoder, p->tokens[i], &bytes);
        if (!text || !grow(&t->echo, t->echo_bytes, bytes, &room, 1)) {
            code = DESCENT_NO_MEMORY;
            break;
        }
        if (bytes > 0) memcpy(t->echo + t->echo_bytes, text, bytes);
        t->echo_bytes += bytes;
    }
    descent_decoder_destroy(decoder);
    return code;
}

static descent_code open_text(transcript *t, descent_status *status)
{
    const generation_request *request = t->options.request;
    const descent_tokenizer *tokenizer = request->model->tokenizer;
    if (!tokenizer) return DESCENT_OK;
    descent_code code = text_stream_create(tokenizer, request->stop, request->n_stop, &t->stream, status);
    if (code != DESCENT_OK) return code;
    const prompt *p = prompt_of(t);
    size_t followed = p->count < FOLLOWED_TOKENS ? p->count : FOLLOWED_TOKENS;
    text_stream_follow(t->stream, p->tokens + (p->count - followed), followed);
    if (request->echo && (code = open_echo(t, tokenizer, status)) != DESCENT_OK) return code;
    if (request->logprobs < 0 || request->kind == REQUEST_TRACE) return DESCENT_OK;
    code = descent_decoder_create(tokenizer, &t->offsets, status);
    if (code != DESCENT_OK || request->echo) return code;
    for (size_t i = p->count - followed; i < p->count; i++) (void)pass_offset(t, p->tokens[i]);
    t->code_points = 0;
    return DESCENT_OK;
}

static token_entry entry_without_logprob(transcript *t, uint32_t token)
{
    return (token_entry){.token = token, .logprob = NAN, .text_offset = pass_offset(t, token)};
}

descent_code transcript_open(transcript *t, const transcript_options *options, descent_status *status)
{
    *t = (transcript){.options = *options};
    (void)pthread_mutex_init(&t->lock, NULL);
    descent_code code = open_text(t, status);
    if (code == DESCENT_OK && options->trace) {
        t->trace_options = *options->trace;
        t->options.trace = &t->trace_options;
        t->tracer = tracer_create(&t->trace_options);
        if (!t->tracer) code = DESCENT_NO_MEMORY;
    }
    if (code == DESCENT_OK && options->live && !record_reserve(&t->ready, options->at_once)) code = DESCENT_NO_MEMORY;
    if (code == DESCENT_OK && transcript_reads_prompt(t) &&
        !add_token(&t->held, entry_without_logprob(t, prompt_of(t)->tokens[0]), NULL))
        code = DESCENT_NO_MEMORY;
    if (code == DESCENT_NO_MEMORY) *status = (descent_status){.code = code, .message = "no memory for a text"};
    if (code != DESCENT_OK) transcript_close(t);
    return code;
}

void transcript_close(transcript *t)
{
    text_stream_destroy(t->stream);
    descent_decoder_destroy(t->offsets);
    tracer_destroy(t->tracer);
    free(t->echo);
    record_release(&t->held);
    record_release(&t->ready);
    (void)pthread_mutex_destroy(&t->lock);
}

/* ---- On the scheduler's thread ----------------------------------------------------------------------------------- */

static bool fail(transcript *t, const descent_status *status)
{
    static const descent_status no_memory = {DESCENT_NO_MEMORY, "no memory for the text of a generation"};
    (void)pthread_mutex_lock(&t->lock);
    if (t->status.code == DESCENT_OK) t->status = status ? *status : no_memory;
    (void)pthread_mutex_unlock(&t->lock);
    return false;
}

/* Puts a token where it waits for its text. */
static bool hold(transcript *t, uint32_t token, const descent_choice *choice)
{
    const generation_request *request = t->options.request;
    uint32_t vocab = request->model->info->vocab;
    token_entry entry = entry_without_logprob(t, token);
    token_logprob top[LOGPROBS_MOST];
    entry.steps = choice->steps;
    entry.logprob = logprob_of(choice->logits, vocab, token);
    if (request->logprobs > 0 && request->kind != REQUEST_TRACE)
        entry.n_top = (uint32_t)logprobs_top(choice->logits, vocab, (size_t)request->logprobs, top);
    return add_token(&t->held, entry, top);
}

static void add_traces(transcript *t)
{
    record *r = &t->ready;
    for (token_trace *trace; (trace = tracer_next(t->tracer));) {
        if (!r->traces) r->last_trace = &r->traces;
        *r->last_trace = trace;
        r->last_trace = &trace->next;
    }
}

/* Under the lock. */
static bool note_time(transcript *t, uint64_t now)
{
    record *r = &t->ready;
    if (!t->first_time) t->first_time = now;
    if (!grow(&r->times, r->n_times, 1, &r->times_room, sizeof *r->times)) return false;
    r->times[r->n_times++] = now;
    return true;
}

/* Moves what may go out to where the loop thread takes it, with the time at which a token was chosen (0: none was). */
static bool publish(transcript *t, const text_release *release, size_t tokens, uint64_t chosen)
{
    (void)pthread_mutex_lock(&t->lock);
    bool fits = !chosen || note_time(t, chosen), something = release->bytes > 0 || (tokens > 0 && t->held.n_tokens > 0);
    if (something && fits)
        fits = move_tokens(&t->ready, &t->held, tokens) && add_piece(&t->ready, release->text, release->bytes);
    if (t->tracer) add_traces(t);
    bool first = something && t->begun && !t->said;
    t->said |= first;
    if (t->options.live && (something || t->ready.traces)) t->options.wake(t->options.user, first);
    (void)pthread_mutex_unlock(&t->lock);
    return fits || fail(t, NULL);
}

/* The prompt, its text or its tokens, where they are asked for, goes out before the first token. */
static bool publish_prompt(transcript *t)
{
    if (t->begun) return true;
    text_release prompt_text = {.text = t->echo, .bytes = t->echo_bytes};
    bool fits = publish(t, &prompt_text, t->held.n_tokens, 0);
    t->begun = true;
    free(t->echo);
    t->echo = NULL;
    t->echo_bytes = 0;
    return fits;
}

bool transcript_chosen(void *user, const descent_choice *choice)
{
    transcript *t = user;
    const prompt *p = prompt_of(t);
    if (!choice->token_chosen) {
        bool follows = choice->position + 1 < p->count && scores(t);
        return !follows || hold(t, p->tokens[choice->position + 1], choice) || fail(t, NULL);
    }
    uint64_t now = uv_hrtime();
    if (!publish_prompt(t)) return false;
    if (scores(t) && !hold(t, choice->token, choice)) return fail(t, NULL);
    text_release release = {.text = "", .tokens = 1};
    descent_status status;
    if (t->stream && text_stream_push(t->stream, choice->token, &release, &status) != DESCENT_OK) return fail(t, &status);
    t->stopped = release.stopped;
    return publish(t, &release, release.tokens, now) && !release.stopped;
}

void transcript_observe(void *user, const descent_observation *seen)
{
    transcript *t = user;
    if (t->tracer) tracer_observe(t->tracer, seen);
    if (t->options.states) states_observe(t->options.states, seen);
    if (t->options.candidate) candidate_observe(t->options.candidate, seen);
}

static void finish_text(transcript *t)
{
    text_release release = {.text = ""};
    descent_status status;
    if (t->tracer) tracer_end(t->tracer);
    bool failed = (t->tracer && tracer_failed(t->tracer)) || (t->options.candidate && t->options.candidate->failed);
    if (failed) (void)fail(t, NULL);
    if (!publish_prompt(t)) return;
    if (t->stream && !t->stopped && text_stream_finish(t->stream, &release, &status) != DESCENT_OK) {
        (void)fail(t, &status);
        return;
    }
    (void)publish(t, &release, release.tokens, 0);
}

void transcript_ended(void *user, const descent_generation_report *report)
{
    transcript *t = user;
    finish_text(t);
    (void)pthread_mutex_lock(&t->lock);
    t->report = *report;
    t->ended = true;
    t->options.wake(t->options.user, true);
    (void)pthread_mutex_unlock(&t->lock); /* the last touch: whoever has the lock next may close the transcript */
}

/* ---- On the loop's thread ---------------------------------------------------------------------------------------- */

bool transcript_take(transcript *t, record *into)
{
    (void)pthread_mutex_lock(&t->lock);
    bool ended = t->ended;
    if (ended || t->options.live) {
        record taken = t->ready;
        t->ready = *into;
        *into = taken;
    }
    (void)pthread_mutex_unlock(&t->lock);
    return ended;
}

void transcript_cancel(transcript *t, descent_generation *generation)
{
    (void)pthread_mutex_lock(&t->lock);
    if (!t->ended) descent_generation_cancel(generation);
    (void)pthread_mutex_unlock(&t->lock);
}

uint64_t transcript_first_time(transcript *t)
{
    (void)pthread_mutex_lock(&t->lock);
    uint64_t first = t->first_time;
    (void)pthread_mutex_unlock(&t->lock);
    return first;
}
