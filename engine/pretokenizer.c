/* pretokenizer.c: the table of patterns and their matching, by PCRE2 with Unicode properties, compiled to machine code
 * where PCRE2 can.
 *
 * A tokenizer has one pattern or two, one after the other: the second cuts what the first left. What a pattern does not
 * match between two matches is a pre-token too. The patterns mean what they mean in the libraries they come from (Rust's
 * regex, Oniguruma); where PCRE2 differs they are spelled differently: white space as a class, because PCRE2's \s takes
 * U+180E as well.
 *
 * None can take more than linear time on any text: a repetition that has to give back what it took does so once, and then
 * either the match or the next alternative takes all of it. Limits hold whatever a pattern does.
 *
 * Called by tokenizer_bpe.c. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pretokenizer.h"

#include "status.h"
#include "utf8.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 2

/* Unicode's White_Space, inside a class. */
#define SPACE "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

/* White space: all of a run but the one before what follows it; a last one alone. */
#define SPACES "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACES

/* What GPT-4's and those after it share: a word may take one other character in front, line breaks end white space. */
#define WORDS_AND(digits)                                                                                                      \
    SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" SPACES

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" SUFFIXES "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" SUFFIXES              \
    "?|\\p{N}{1,3}| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n/]*|[" SPACE "]*[\\r\\n]+|" SPACES

typedef struct pattern_row {
    const char *name;
    const char *patterns[MAX_STAGES];
} pattern_row;

static const pattern_row rows[] = {
    {"gpt-2", {GPT2}},
    {"llama-bpe", {WORDS_AND("\\p{N}{1,3}")}},
    {"qwen2", {WORDS_AND("\\p{N}")}},
    {"smollm", {"\\p{N}", GPT2}},
    {"gpt-4o", {O200K}},
};

#define COUNT_ROWS (sizeof rows / sizeof rows[0])

/* ---- Compiling --------------------------------------------------------------------------------------------------- */

struct pretokenizer {
    pcre2_code *stages[MAX_STAGES];
    size_t n_stages;
};

static descent_code find_row(gguf_string name, const pattern_row **row, descent_status *status)
{
    char known[128] = "", shown[64];
    size_t written = 0;
    for (size_t i = 0; i < COUNT_ROWS; i++) {
        if (gguf_string_is(name, rows[i].name)) {
            *row = &rows[i];
            return DESCENT_OK;
        }
        size_t bytes = strlen(rows[i].name);
        if (written + bytes + 3 > sizeof known) continue;
        if (written > 0) known[written++] = ',', known[written++] = ' ';
        memcpy(known + written, rows[i].name, bytes + 1);
        written += bytes;
    }
    return descent_fail(status, DESCENT_UNSUPPORTED, "tokenizer.ggml.pre is \"%s\"; this version has: %s",
                        utf8_printable(name.text, name.bytes, shown, sizeof shown), known);
}

static descent_code compile(const char *pattern, pcre2_code **code, descent_status *status)
{
    int error;
    PCRE2_SIZE offset;
    *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error, &offset, NULL);
    if (!*code)
        return descent_fail(status, DESCENT_UNSUPPORTED,
                            "this PCRE2 library cannot compile a pattern of pre-tokens (error %d at %zu)", error, offset);
    /* Without machine code, as where memory may not be both written and run, matching is slower and the same. */
    (void)pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);
    return DESCENT_OK;
}

descent_code pretokenizer_create(gguf_string name, pretokenizer **pre, descent_status *status)
{
    const pattern_row *row = NULL;
    descent_code code = find_row(name, &row, status);
    if (code) return code;
    pretokenizer *p = calloc(1, sizeof *p);
    if (!p) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a pattern");
    for (; p->n_stages < MAX_STAGES && row->patterns[p->n_stages] && !code; p->n_stages++)
        code = compile(row->patterns[p->n_stages], &p->stages[p->n_stages], status);
    if (code) {
        pretokenizer_destroy(p);
        return code;
    }
    *pre = p;
    return DESCENT_OK;
}

void pretokenizer_destroy(pretokenizer *pre)
{
    if (!pre) return;
    for (size_t i = 0; i < MAX_STAGES; i++) pcre2_code_free(pre->stages[i]);
    free(pre);
}

/* ---- Cutting ----------------------------------------------------------------------------------------------------- */

struct pretokenizer_work {
    const pretokenizer *pre;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    bool compiled[MAX_STAGES]; /* to machine code */
};

descent_code pretokenizer_work_create(const pretokenizer *pre, pretokenizer_work **work, descent_status *status)
{
    pretokenizer_work *w = calloc(1, sizeof *w);
    if (w) {
        w->pre = pre;
        w->match = pcre2_match_data_create(1, NULL);
        w->limits = pcre2_match_context_create(NULL);
    }
    if (!w || !w->match || !w->limits) {
        pretokenizer_work_destroy(w);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory to cut a text");
    }
    for (size_t i = 0; i < pre->n_stages; i++) {
        size_t size = 0;
        w->compiled[i] = pcre2_pattern_info(pre->stages[i], PCRE2_INFO_JITSIZE, &size) == 0 && size > 0;
    }
    *work = w;
    return DESCENT_OK;
}

void pretokenizer_work_destroy(pretokenizer_work *work)
{
    if (!work) return;
    pcre2_match_data_free(work->match);
    pcre2_match_context_free(work->limits);
    free(work);
}

/* Where the first match from `from` starts and ends; both `bytes` when there is none. */
static descent_code find(const pretokenizer_work *w, size_t stage, const char *text, size_t bytes, size_t from, size_t *start,
                         size_t *end, descent_status *status)
{
    const pcre2_code *pattern = w->pre->stages[stage];
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (w->compiled[stage]) found = pcre2_jit_match(pattern, subject, bytes, from, PCRE2_NO_UTF_CHECK, w->match, w->limits);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(pattern, subject, bytes, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, w->match, w->limits);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH)
        return descent_fail(status, found == PCRE2_ERROR_NOMEMORY ? DESCENT_NO_MEMORY : DESCENT_LIMIT,
                            "no pre-token found at byte %zu of %zu within the pattern matcher's limits (error %d)", from, bytes,
                            found);
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(w->match);
    *start = found < 0 ? bytes : place[0];
    *end = found < 0 ? bytes : place[1];
    return DESCENT_OK;
}

static descent_code cut(const pretokenizer_work *w, size_t stage, const char *text, size_t bytes, pretokenizer_take take,
                        void *context, descent_status *status)
{
    if (stage == w->pre->n_stages) return take(context, text, bytes, status);
    descent_code code = DESCENT_OK;
    for (size_t at = 0; at < bytes && !code;) {
        size_t start = bytes, end = bytes;
        code = find(w, stage, text, bytes, at, &start, &end, status);
        if (!code && start > at) code = cut(w, stage + 1, text + at, start - at, take, context, status);
        if (!code && end > start) code = cut(w, stage + 1, text + start, end - start, take, context, status);
        at = end;
    }
    return code;
}

/* Of one match: each byte read may be given back a few times, and a little text needs something too. */
static uint32_t step_limit(size_t bytes)
{
    return bytes > UINT32_MAX / 32 ? UINT32_MAX : (uint32_t)(32 * bytes + 1000);
}

descent_code pretokenizer_cut(pretokenizer_work *work, const char *text, size_t bytes, pretokenizer_take take, void *context,
                              descent_status *status)
{
    (void)pcre2_set_match_limit(work->limits, step_limit(bytes));
    return cut(work, 0, text, bytes, take, context, status);
}
