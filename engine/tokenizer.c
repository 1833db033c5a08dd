/* tokenizer.c: what all kinds of tokenizers share. Loading reads the vocabulary from `tokenizer.ggml.*` metadata, checks
 * every count, id, type and spelling, and copies it, so a tokenizer does not depend on the file; the kind adds its own
 * part. Then the public functions of descent.h "Tokenizer", and the streaming decoder.
 *
 * Called by model.c (tokenizer_load, tokenizer_free) and through descent.h. Encoding allocates, decoding never does after
 * descent_decoder_create. */
#include "tokenizer.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

static const tokenizer_kind *const kinds[] = {&tokenizer_chars, &tokenizer_words, &tokenizer_spm, &tokenizer_unigram,
                                              &tokenizer_bpe};

static const char TOKENS_KEY[] = "tokenizer.ggml.tokens", TYPES_KEY[] = "tokenizer.ggml.token_type";

/* ---- Loading ----------------------------------------------------------------------------------------------------- */

static descent_code find_kind(gguf_string name, const tokenizer_kind **kind, descent_status *status)
{
    char known[128] = "", shown[64];
    size_t written = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (gguf_string_is(name, kinds[i]->name)) {
            *kind = kinds[i];
            return DESCENT_OK;
        }
        size_t bytes = strlen(kinds[i]->name);
        if (written + bytes + 3 > sizeof known) continue;
        if (written > 0) known[written++] = ',', known[written++] = ' ';
        memcpy(known + written, kinds[i]->name, bytes + 1);
        written += bytes;
    }
    return descent_fail(status, DESCENT_UNSUPPORTED, "tokenizer.ggml.model is \"%s\"; this version has: %s",
                        utf8_printable(name.text, name.bytes, shown, sizeof shown), known);
}

static descent_code check_spelling(gguf_string spelling, size_t id, descent_status *status)
{
    if (spelling.bytes == 0) return descent_fail(status, DESCENT_BAD_FILE, "%s: token %zu is empty", TOKENS_KEY, id);
    if (spelling.bytes > TOKENIZER_MAX_TOKEN_BYTES)
        return descent_fail(status, DESCENT_BAD_FILE, "%s: token %zu has %zu bytes, expected at most %zu", TOKENS_KEY, id,
                            spelling.bytes, TOKENIZER_MAX_TOKEN_BYTES);
    if (!utf8_valid(spelling.text, spelling.bytes))
        return descent_fail(status, DESCENT_BAD_FILE, "%s: token %zu is not valid UTF-8", TOKENS_KEY, id);
    return DESCENT_OK;
}

/* Keys that change what a text becomes, each read by the kinds named: with any other, what the file asks for would not
 * happen. */
typedef struct kind_key {
    const char *key;
    const tokenizer_kind *kinds[2];
} kind_key;

static const kind_key kind_keys[] = {
    {"tokenizer.descent.separator", {&tokenizer_words}},
    {"tokenizer.descent.normalizer", {&tokenizer_bpe}},
    {"tokenizer.descent.ignore_merges", {&tokenizer_bpe}},
    {"tokenizer.descent.space_prefix", {&tokenizer_merges}},
    {"tokenizer.descent.token_flags", {&tokenizer_bpe, &tokenizer_merges}},
};

static descent_code refuse_other_keys(const tokenizer_kind *kind, const gguf_file *file, descent_status *status)
{
    for (size_t i = 0; i < sizeof kind_keys / sizeof kind_keys[0]; i++) {
        const kind_key *k = &kind_keys[i];
        if (k->kinds[0] == kind || k->kinds[1] == kind || !gguf_has(file, k->key)) continue;
        return descent_fail(status, DESCENT_UNSUPPORTED, "%s is there, which the \"%s\" tokenizer%s does not have", k->key,
                            kind->name, kind == &tokenizer_spm ? " without merges" : "");
    }
    return DESCENT_OK;
}

static descent_code load_spellings(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    gguf_array array;
    descent_code code = gguf_get_string_array(file, TOKENS_KEY, &array, status);
    if (code) return code;
    if (array.count == 0 || array.count > TOKENIZER_MAX_TOKENS)
        return descent_fail(status, DESCENT_BAD_FILE, "%s has %zu tokens, expected 1..%u", TOKENS_KEY, array.count,
                            TOKENIZER_MAX_TOKENS);
    size_t total = 0;
    for (size_t id = 0; id < array.count; id++) {
        gguf_string spelling = gguf_string_at(&array, id);
        code = check_spelling(spelling, id, status);
        if (code) return code;
        total += spelling.bytes;
    }
    t->count = (uint32_t)array.count;
    t->spellings = calloc(t->count, sizeof *t->spellings);
    t->pieces = calloc(t->count, sizeof *t->pieces);
    t->types = calloc(t->count, sizeof *t->types);
    t->spelling_bytes = malloc(total);
    if (!t->spellings || !t->pieces || !t->types || !t->spelling_bytes)
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a vocabulary of %u tokens", t->count);
    char *next = t->spelling_bytes;
    for (uint32_t id = 0; id < t->count; id++) {
        gguf_string spelling = gguf_string_at(&array, id);
        memcpy(next, spelling.text, spelling.bytes);
        t->spellings[id] = (token_string){next, (uint32_t)spelling.bytes};
        if (spelling.bytes > t->longest_spelling) t->longest_spelling = spelling.bytes;
        next += spelling.bytes;
    }
    return DESCENT_OK;
}

static descent_code load_types(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    if (!gguf_has(file, TYPES_KEY)) {
        memset(t->types, TOKEN_NORMAL, t->count);
        return DESCENT_OK;
    }
    gguf_array array;
    descent_code code = gguf_get_i32_array(file, TYPES_KEY, &array, status);
    if (code) return code;
    if (array.count != t->count)
        return descent_fail(status, DESCENT_BAD_FILE, "%s has %zu entries, expected one for each of the %u tokens", TYPES_KEY,
                            array.count, t->count);
    for (uint32_t id = 0; id < t->count; id++) {
        int32_t type = gguf_i32_at(&array, id);
        if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
            return descent_fail(status, DESCENT_BAD_FILE, "%s: token %u has type %d, expected 1..6", TYPES_KEY, id, type);
        t->types[id] = (uint8_t)type;
    }
    return DESCENT_OK;
}

static descent_code load_id(const descent_tokenizer *t, const gguf_file *file, const char *key, int64_t *id,
                            descent_status *status)
{
    *id = -1;
    if (!gguf_has(file, key)) return DESCENT_OK;
    uint32_t value;
    descent_code code = gguf_get_u32(file, key, 0, t->count - 1, &value, status);
    if (code) return code;
    *id = value;
    return DESCENT_OK;
}

static descent_code load_adds(const gguf_file *file, const char *key, const char *id_key, int64_t id, bool *adds,
                              descent_status *status)
{
    if (!gguf_has(file, key)) return DESCENT_OK;
    descent_code code = gguf_get_bool(file, key, adds, status);
    if (code) return code;
    if (*adds && id < 0)
        return descent_fail(status, DESCENT_BAD_FILE, "%s is true, expected a key %s to say which token", key, id_key);
    return DESCENT_OK;
}

static descent_code load_special(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    static const char bos_key[] = "tokenizer.ggml.bos_token_id", eos_key[] = "tokenizer.ggml.eos_token_id";
    descent_tokenizer_info *info = &t->info;
    descent_code code = load_id(t, file, bos_key, &info->bos, status);
    if (!code) code = load_id(t, file, eos_key, &info->eos, status);
    if (!code) code = load_id(t, file, "tokenizer.ggml.padding_token_id", &info->pad, status);
    if (!code) code = load_id(t, file, "tokenizer.ggml.unknown_token_id", &info->unknown, status);
    if (!code) code = load_adds(file, "tokenizer.ggml.add_bos_token", bos_key, info->bos, &info->adds_bos, status);
    if (!code) code = load_adds(file, "tokenizer.ggml.add_eos_token", eos_key, info->eos, &info->adds_eos, status);
    if (code) return code;
    if (info->unknown < 0) {
        const uint8_t *first = memchr(t->types, TOKEN_UNKNOWN, t->count);
        if (first) info->unknown = first - t->types;
    }
    /* What ends or pads a text must never be spelled by plain text, whatever type the file gives it. */
    const int64_t ids[] = {info->bos, info->eos, info->pad};
    for (size_t i = 0; i < 3; i++)
        if (ids[i] >= 0 && t->types[ids[i]] != TOKEN_UNKNOWN && t->types[ids[i]] != TOKEN_BYTE)
            t->types[ids[i]] = TOKEN_CONTROL;
    return DESCENT_OK;
}

static descent_code build_pieces(descent_tokenizer *t, descent_status *status)
{
    size_t total = 0;
    for (uint32_t id = 0; id < t->count; id++) {
        size_t bytes = descent_tokenizer_has_text(t, id) ? t->kind->spell(t, id, NULL) : 0;
        t->pieces[id].bytes = (uint32_t)bytes;
        if (bytes > t->longest_piece) t->longest_piece = bytes;
        total += bytes;
    }
    t->piece_bytes = malloc(total ? total : 1);
    if (!t->piece_bytes) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for the text of %u tokens", t->count);
    char *next = t->piece_bytes;
    for (uint32_t id = 0; id < t->count; id++) {
        t->pieces[id].text = next;
        if (t->pieces[id].bytes) next += t->kind->spell(t, id, next);
    }
    return DESCENT_OK;
}

static descent_code load_all(descent_tokenizer *t, const gguf_file *file, descent_status *status)
{
    descent_code code = refuse_other_keys(t->kind, file, status);
    if (!code) code = load_spellings(t, file, status);
    if (!code) code = load_types(t, file, status);
    if (!code) code = token_index_build(&t->index, t->spellings, t->count, status);
    if (!code) code = load_special(t, file, status);
    if (!code)
        code = token_search_build(&t->special, t->spellings, t->types, t->count, 1u << TOKEN_CONTROL | 1u << TOKEN_UNKNOWN,
                                  status);
    if (!code) code = t->kind->load(t, file, status);
    if (!code) code = build_pieces(t, status);
    return code;
}

descent_code tokenizer_load(const gguf_file *file, uint32_t vocab, descent_tokenizer **tokenizer, descent_status *status)
{
    static const char model_key[] = "tokenizer.ggml.model";
    if (!gguf_has(file, model_key)) {
        *tokenizer = NULL;
        return descent_ok(status);
    }
    gguf_string name;
    const tokenizer_kind *kind = NULL;
    descent_code code = gguf_get_string(file, model_key, &name, status);
    if (!code) code = find_kind(name, &kind, status);
    if (code) return code;
    if (kind == &tokenizer_spm && gguf_has(file, "tokenizer.ggml.merges")) kind = &tokenizer_merges;

    descent_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a tokenizer");
    t->kind = kind;
    t->info.model = kind->name;
    code = load_all(t, file, status);
    if (code) {
        tokenizer_free(t);
        return code;
    }
    t->info.vocab = t->count > vocab ? t->count : vocab;
    *tokenizer = t;
    return descent_ok(status);
}

void tokenizer_free(descent_tokenizer *t)
{
    if (!t) return;
    t->kind->unload(t);
    token_search_free(&t->special);
    token_index_free(&t->index);
    free(t->spellings);
    free(t->pieces);
    free(t->types);
    free(t->spelling_bytes);
    free(t->piece_bytes);
    free(t);
}

/* ---- Reading and encoding ---------------------------------------------------------------------------------------- */

const descent_tokenizer_info *descent_tokenizer_describe(const descent_tokenizer *tokenizer)
{
    return &tokenizer->info;
}

bool descent_tokenizer_has_text(const descent_tokenizer *tokenizer, uint32_t id)
{
    const descent_tokenizer_info *info = &tokenizer->info;
    return id < tokenizer->count && tokenizer->types[id] != TOKEN_CONTROL && id != info->bos && id != info->eos &&
           id != info->pad;
}

const char *descent_tokenizer_piece(const descent_tokenizer *tokenizer, uint32_t id, size_t *bytes)
{
    token_string piece = id < tokenizer->count ? tokenizer->pieces[id] : (token_string){"", 0};
    *bytes = piece.bytes;
    return piece.text;
}

const char *descent_tokenizer_spelling(const descent_tokenizer *tokenizer, uint32_t id, size_t *bytes)
{
    token_string spelling = id < tokenizer->count ? tokenizer->spellings[id] : (token_string){"", 0};
    *bytes = spelling.bytes;
    return spelling.text;
}

bool special_within(const special_ranges *where, size_t start, size_t end)
{
    size_t low = 0, high = where->count; /* ranges before `low` begin at `start` or before it, those from `high` on behind it */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (where->list[middle].start <= start)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && end <= where->list[low - 1].end;
}

descent_code tokenizer_find_special(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                                    token_matches *matches, descent_status *status)
{
    if (special->count == 0) return DESCENT_OK;
    descent_code code = token_search_all(&t->special, text, bytes, matches, status);
    size_t kept = 0;
    for (size_t i = 0; i < matches->count; i++) {
        token_match m = matches->list[i];
        if (special_within(special, m.start, (size_t)m.start + m.bytes)) matches->list[kept++] = m;
    }
    matches->count = kept;
    return code;
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special, bool add,
                           token_list *list, descent_status *status)
{
    descent_code code = DESCENT_OK;
    if (add && t->info.adds_bos) code = token_list_add(list, (uint32_t)t->info.bos, status);
    if (!code && bytes > 0) code = t->kind->encode(t, text, bytes, special, list, status);
    if (!code && add && t->info.adds_eos) code = token_list_add(list, (uint32_t)t->info.eos, status);
    return code;
}

/* The ids of a whole text, for the caller of the library. */
static descent_code encode_out(const descent_tokenizer *t, const char *text, size_t bytes, const special_ranges *special,
                               bool add, uint32_t **tokens, size_t *count, descent_status *status)
{
    token_list list = {.ids = malloc(sizeof *list.ids), .room = 1};
    if (!list.ids) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a token");
    descent_code code = encode(t, text, bytes, special, add, &list, status);
    if (code) {
        free(list.ids);
        return code;
    }
    *tokens = list.ids;
    *count = list.count;
    return descent_ok(status);
}

descent_code descent_tokenizer_encode(const descent_tokenizer *tokenizer, const char *text, size_t bytes, int flags,
                                      uint32_t **tokens, size_t *count, descent_status *status)
{
    if (!text && bytes > 0) return descent_fail(status, DESCENT_BAD_ARGUMENT, "no text, but %zu bytes of it", bytes);
    if (flags & ~(DESCENT_ADD_SPECIAL | DESCENT_PARSE_SPECIAL))
        return descent_fail(status, DESCENT_BAD_ARGUMENT,
                            "flags %#x: expected DESCENT_ADD_SPECIAL and DESCENT_PARSE_SPECIAL only", (unsigned)flags);
    struct special_range whole = {0, bytes};
    special_ranges special = {&whole, flags & DESCENT_PARSE_SPECIAL ? 1 : 0};
    return encode_out(tokenizer, text, bytes, &special, flags & DESCENT_ADD_SPECIAL, tokens, count, status);
}

/* Puts the parts' texts one behind the other; ranges that touch become one. */
static void join(const descent_text_part *parts, size_t n_parts, char *text, struct special_range *ranges, size_t *n_ranges)
{
    size_t at = 0;
    *n_ranges = 0;
    for (size_t i = 0; i < n_parts; i++) {
        if (parts[i].bytes == 0) continue;
        memcpy(text + at, parts[i].text, parts[i].bytes);
        if (parts[i].parse_special) {
            if (*n_ranges == 0 || ranges[*n_ranges - 1].end < at) ranges[(*n_ranges)++].start = at;
            ranges[*n_ranges - 1].end = at + parts[i].bytes;
        }
        at += parts[i].bytes;
    }
}

descent_code descent_tokenizer_encode_parts(const descent_tokenizer *tokenizer, const descent_text_part *parts, size_t n_parts,
                                            bool add_special, uint32_t **tokens, size_t *count, descent_status *status)
{
    size_t total = 0;
    for (size_t i = 0; i < n_parts; i++) {
        if (!parts[i].text && parts[i].bytes > 0)
            return descent_fail(status, DESCENT_BAD_ARGUMENT, "part %zu: no text, but %zu bytes of it", i, parts[i].bytes);
        if (__builtin_add_overflow(total, parts[i].bytes, &total))
            return descent_fail(status, DESCENT_LIMIT, "the text of %zu parts is longer than memory", n_parts);
    }
    char *text = malloc(total ? total : 1);
    struct special_range *ranges = calloc(n_parts ? n_parts : 1, sizeof *ranges);
    descent_code code =
        text && ranges ? DESCENT_OK : descent_fail(status, DESCENT_NO_MEMORY, "no memory for a text of %zu bytes", total);
    if (!code) {
        special_ranges special = {ranges, 0};
        join(parts, n_parts, text, ranges, &special.count);
        code = encode_out(tokenizer, text, total, &special, add_special, tokens, count, status);
    }
    free(text);
    free(ranges);
    return code;
}

/* ---- Decoding ---------------------------------------------------------------------------------------------------- */

struct descent_decoder {
    const descent_tokenizer *tokenizer;
    utf8_stream stream;
    bool leading; /* the text has not begun: a kind may still leave out bytes */
    char *text;   /* has room for what the longest piece can become */
};

descent_code descent_decoder_create(const descent_tokenizer *tokenizer, descent_decoder **decoder, descent_status *status)
{
    descent_decoder *d = calloc(1, sizeof *d);
    char *text = malloc(UTF8_STREAM_ROOM(tokenizer->longest_piece) + 1);
    if (!d || !text) {
        free(d);
        free(text);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a decoder");
    }
    d->tokenizer = tokenizer;
    d->stream.replacement = tokenizer->kind->replacement;
    d->leading = true;
    d->text = text;
    *decoder = d;
    return descent_ok(status);
}

void descent_decoder_destroy(descent_decoder *decoder)
{
    if (!decoder) return;
    free(decoder->text);
    free(decoder);
}

const char *descent_decoder_push(descent_decoder *decoder, uint32_t id, size_t *bytes)
{
    const descent_tokenizer *t = decoder->tokenizer;
    size_t piece_bytes, trimmed = 0;
    const char *piece = descent_tokenizer_piece(t, id, &piece_bytes);
    if (decoder->leading && piece_bytes > 0 && t->kind->trim_leading) trimmed = t->kind->trim_leading(t, id, &decoder->leading);
    /* No character goes on across a token without text: half of one before it stays half. */
    *bytes = piece_bytes > 0 ? utf8_stream_push(&decoder->stream, piece + trimmed, piece_bytes - trimmed, decoder->text)
                             : utf8_stream_finish(&decoder->stream, decoder->text);
    decoder->text[*bytes] = '\0';
    return decoder->text;
}

size_t descent_decoder_held(const descent_decoder *decoder)
{
    return decoder->stream.held_bytes;
}

const char *descent_decoder_finish(descent_decoder *decoder, size_t *bytes)
{
    *bytes = utf8_stream_finish(&decoder->stream, decoder->text);
    decoder->text[*bytes] = '\0';
    decoder->leading = true;
    return decoder->text;
}
