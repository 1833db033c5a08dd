/* added_tokens.c: see added_tokens.h. Matches are the leftmost, the longest of those, and do not overlap, as in Hugging Face's
 * AddedVocabulary; a match that a flag forbids, or that may not be a special token, is passed over whole.
 *
 * Called by tokenizer_bpe.c and tokenizer_merges.c. Work memory is the call's own. */
#include "added_tokens.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define ALL_FLAGS (ADDED_LSTRIP | ADDED_RSTRIP | ADDED_SINGLE_WORD | ADDED_NORMALIZED | ADDED_OUTSIDE)
#define ADDED_TYPES (1u << TOKEN_UNKNOWN | 1u << TOKEN_CONTROL | 1u << TOKEN_USER_DEFINED)

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static descent_code load_flags(added_tokens *a, const descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    a->flags = calloc(t->count, 1);
    if (!a->flags) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for the flags of %u tokens", t->count);
    if (!gguf_has(file, ADDED_FLAGS_KEY)) return DESCENT_OK;
    gguf_array array;
    descent_code code = gguf_get_u8_array(file, ADDED_FLAGS_KEY, &array, status);
    if (code) return code;
    if (array.count != t->count)
        return descent_fail(status, DESCENT_BAD_FILE, "%s has %zu entries, expected one for each of the %u tokens",
                            ADDED_FLAGS_KEY, array.count, t->count);
    memcpy(a->flags, array.data, t->count);
    for (uint32_t id = 0; id < t->count; id++) {
        if (a->flags[id] & ~ALL_FLAGS)
            return descent_fail(status, DESCENT_BAD_FILE, "%s: token %u has flags %u, expected a sum of 1, 2, 4, 8 and 16",
                                ADDED_FLAGS_KEY, id, a->flags[id]);
        if (a->flags[id] && !(ADDED_TYPES >> t->types[id] & 1))
            return descent_fail(status, DESCENT_BAD_FILE, "%s: token %u has flags, but its type %u is none that is added",
                                ADDED_FLAGS_KEY, id, t->types[id]);
    }
    return DESCENT_OK;
}

/* Which search a token belongs to, in the place of its type. */
enum { IN_NONE, IN_AS_IS, IN_NORMALIZED };

/* The spelling as normalized text has it, in memory of its own that texts[id] then owns. */
static descent_code normalize_text(token_string *text, const added_steps *steps, void *work, descent_status *status)
{
    const char *bytes = text->text;
    size_t count = text->bytes;
    *text = (token_string){NULL, 0};
    descent_code code = steps->normalize ? steps->normalize(work, &bytes, &count, status) : DESCENT_OK;
    if (code) return code;
    char *own = malloc(count);
    if (!own) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for an added token of %zu bytes", count);
    memcpy(own, bytes, count);
    *text = (token_string){own, (uint32_t)count};
    return DESCENT_OK;
}

static descent_code build(added_tokens *a, const descent_tokenizer *t, const added_steps *steps, void *work,
                          token_string *texts, uint8_t *in, descent_status *status)
{
    descent_code code = DESCENT_OK;
    for (uint32_t id = 0; id < t->count && !code; id++) {
        if (!(ADDED_TYPES >> t->types[id] & 1)) continue;
        texts[id] = t->spellings[id];
        in[id] = a->flags[id] & ADDED_NORMALIZED ? IN_NORMALIZED : IN_AS_IS;
        if (in[id] == IN_NORMALIZED) code = normalize_text(&texts[id], steps, work, status);
    }
    if (!code) code = token_search_build(&a->as_is, texts, in, t->count, 1u << IN_AS_IS, status);
    if (!code) code = token_search_build(&a->normalized, texts, in, t->count, 1u << IN_NORMALIZED, status);
    return code;
}

descent_code added_tokens_load(added_tokens *added, const descent_tokenizer *t, const gguf_file *file, const added_steps *steps,
                               void *work, descent_status *status)
{
    descent_code code = load_flags(added, t, file, status);
    if (code) return code;
    token_string *texts = calloc(t->count, sizeof *texts);
    uint8_t *in = calloc(t->count, 1);
    if (texts && in) {
        code = build(added, t, steps, work, texts, in, status);
        for (uint32_t id = 0; id < t->count; id++)
            if (in[id] == IN_NORMALIZED) free((char *)texts[id].text);
    } else {
        code = descent_fail(status, DESCENT_NO_MEMORY, "no memory for the added tokens of %u", t->count);
    }
    free(texts);
    free(in);
    return code;
}

void added_tokens_free(added_tokens *added)
{
    token_search_free(&added->as_is);
    token_search_free(&added->normalized);
    free(added->flags);
}

/* ---- Characters -------------------------------------------------------------------------------------------------- */

/* Unicode's White_Space. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Unicode's word characters: alphabetic (beside letters and marks, letter numbers and letters in circles and squares),
 * marks, decimal digits, connecting punctuation, joiners. */
static bool is_word(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
               (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    }
}

/* The character that ends at `end`, not looking before `from`, and its length; 0 when there is none. */
static size_t read_back(const char *text, size_t from, size_t end, uint32_t *c)
{
    for (size_t length = 1; length <= 4 && length <= end - from; length++)
        if (utf8_read(text + end - length, length, c) == length) return length;
    return 0;
}

static size_t spaces_before(const char *text, size_t from, size_t end)
{
    uint32_t c;
    for (size_t length; (length = read_back(text, from, end, &c)) > 0 && is_space(c);) end -= length;
    return end;
}

static size_t spaces_after(const char *text, size_t bytes, size_t at)
{
    uint32_t c;
    for (size_t length; (length = utf8_read(text + at, bytes - at, &c)) > 0 && is_space(c);) at += length;
    return at;
}

static bool stands_alone(const char *text, size_t bytes, token_match m)
{
    uint32_t c;
    size_t end = (size_t)m.start + m.bytes;
    if (read_back(text, 0, m.start, &c) > 0 && is_word(c)) return false;
    return utf8_read(text + end, bytes - end, &c) == 0 || !is_word(c);
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

/* One call's memory. */
typedef struct encoding {
    const added_tokens *added;
    const descent_tokenizer *t;
    const added_steps *steps;
    void *work;
    const char *text; /* the whole */
    const special_ranges *special;
    bool all_special; /* of the part being looked at in its normalized form, whose places are not the text's */
    token_list *list;
    token_matches as_is, normalized;
} encoding;

/* What is done with the text between tokens. */
typedef descent_code (*take_text)(encoding *e, const char *text, size_t bytes, bool first, descent_status *status);

static bool allowed(const encoding *e, const token_search *search, const char *text, size_t bytes, token_match m)
{
    if (e->t->types[m.id] != TOKEN_USER_DEFINED) {
        size_t start = m.start, end = start + m.bytes;
        if (search == &e->added->as_is ? !special_within(e->special, start, end) : !e->all_special) return false;
    }
    return !(e->added->flags[m.id] & ADDED_SINGLE_WORD) || stands_alone(text, bytes, m);
}

/* Appends the tokens that `search` finds and gives what is between to `take`. White space that rstrip took may hold a
 * match, which then counts as well, unless lstrip leaves nothing of it; `spaces_end` keeps such a run from being read again
 * for each. */
static descent_code cut(encoding *e, const token_search *search, token_matches *matches, const char *text, size_t bytes,
                        bool first, take_text take, descent_status *status)
{
    descent_code code = token_search_all(search, text, bytes, matches, status);
    size_t taken = 0, spaces_start = 1, spaces_end = 0;
    const token_match *found;
    for (size_t at = 0; !code && (found = token_matches_from(matches, at));) {
        token_match m = *found;
        size_t start = m.start, end = at = start + m.bytes;
        if (!allowed(e, search, text, bytes, m)) continue;
        if (e->added->flags[m.id] & ADDED_LSTRIP) start = start > taken ? spaces_before(text, taken, start) : taken;
        if (e->added->flags[m.id] & ADDED_RSTRIP) {
            if (end < spaces_start || end > spaces_end) spaces_end = spaces_after(text, bytes, end);
            spaces_start = end;
            end = spaces_end;
        }
        if (end <= start) continue;
        if (start > taken) code = take(e, text + taken, start - taken, first && taken == 0, status);
        if (!code) code = token_list_add(e->list, m.id, status);
        taken = end;
    }
    if (!code && taken < bytes) code = take(e, text + taken, bytes - taken, first && taken == 0, status);
    return code;
}

static descent_code take_normalized(encoding *e, const char *text, size_t bytes, bool first, descent_status *status)
{
    return e->steps->encode(e->work, text, bytes, first, e->list, status);
}

static descent_code take_as_is(encoding *e, const char *text, size_t bytes, bool first, descent_status *status)
{
    size_t start = (size_t)(text - e->text);
    e->all_special = special_within(e->special, start, start + bytes);
    descent_code code = e->steps->normalize ? e->steps->normalize(e->work, &text, &bytes, status) : DESCENT_OK;
    return code ? code : cut(e, &e->added->normalized, &e->normalized, text, bytes, first, take_normalized, status);
}

descent_code added_tokens_encode(const added_tokens *added, const descent_tokenizer *t, const added_steps *steps, void *work,
                                 const char *text, size_t bytes, const special_ranges *special, token_list *list,
                                 descent_status *status)
{
    if (bytes > TOKENIZER_MAX_TEXT_BYTES)
        return descent_fail(status, DESCENT_LIMIT, "the text has %zu bytes, expected at most %zu", bytes,
                            TOKENIZER_MAX_TEXT_BYTES);
    encoding e = {.added = added, .t = t, .steps = steps, .work = work, .text = text, .special = special, .list = list};
    descent_code code = cut(&e, &added->as_is, &e.as_is, text, bytes, true, take_as_is, status);
    free(e.as_is.list);
    free(e.normalized.list);
    return code;
}
