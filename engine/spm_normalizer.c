/* spm_normalizer.c: SentencePiece's normalization, step for step as the sentencepiece library does it.
 *
 * The table comes from the file as one blob: u32 bytes of the trie, the trie, the pool. The trie is a Darts double array:
 * each 32-bit unit holds the byte that leads to it (low 8 bits), whether a key ends there (bit 8), and an offset (bits 10
 * and up, in units of 256 where bit 9 is set); from unit p over byte b one comes to p ^ offset(p) ^ b. Where a key ends,
 * unit p ^ offset(p) is its value, bit 31 set: where in the pool its replacement starts. Every key end is checked when
 * the table is loaded, and every step of a walk when it is made.
 *
 * Called by the SentencePiece tokenizers. Work memory is the caller's buffer. */
#include "spm_normalizer.h"

#include "status.h"

#include <stdlib.h>
#include <string.h>

static const char CHARSMAP_KEY[] = "tokenizer.ggml.precompiled_charsmap";

/* So that a text grows by a bounded factor; the longest in Unicode's NFKC has 33. */
#define MAX_REPLACEMENT_BYTES 255

#define VALUE_BIT 0x80000000u

/* ---- The table --------------------------------------------------------------------------------------------------- */

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 0x200) >> 6);
}

static bool key_ends(uint32_t unit)
{
    return unit & 0x100;
}

static descent_code check_key_end(const spm_normalizer *n, uint32_t at, descent_status *status)
{
    uint32_t leaf = at ^ unit_offset(n->units[at]);
    if (leaf >= n->n_units || !(n->units[leaf] & VALUE_BIT))
        return descent_fail(status, DESCENT_BAD_FILE, "%s: unit %u of the trie points at no value", CHARSMAP_KEY, at);
    uint32_t start = n->units[leaf] & ~VALUE_BIT;
    if (start >= n->pool_bytes)
        return descent_fail(status, DESCENT_BAD_FILE, "%s: unit %u of the trie points at byte %u of %zu of replacements",
                            CHARSMAP_KEY, leaf, start, n->pool_bytes);
    size_t most = n->pool_bytes - start < MAX_REPLACEMENT_BYTES + 1 ? n->pool_bytes - start : MAX_REPLACEMENT_BYTES + 1;
    if (!memchr(n->pool + start, '\0', most))
        return descent_fail(status, DESCENT_BAD_FILE, "%s: the replacement at byte %u does not end within %d bytes",
                            CHARSMAP_KEY, start, MAX_REPLACEMENT_BYTES);
    return DESCENT_OK;
}

static descent_code load_table(spm_normalizer *n, gguf_array blob, descent_status *status)
{
    uint32_t trie_bytes = 0;
    if (blob.count >= 4) memcpy(&trie_bytes, blob.data, 4);
    if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > blob.count - 4)
        return descent_fail(status, DESCENT_BAD_FILE, "%s: %u bytes of trie in %zu bytes, expected a multiple of 4 that fits",
                            CHARSMAP_KEY, trie_bytes, blob.count);
    n->n_units = trie_bytes / 4;
    n->pool_bytes = blob.count - 4 - trie_bytes;
    n->units = malloc(trie_bytes);
    n->pool = malloc(n->pool_bytes ? n->pool_bytes : 1);
    if (!n->units || !n->pool) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for a table of %zu bytes", blob.count);
    memcpy(n->units, blob.data + 4, trie_bytes);
    memcpy(n->pool, blob.data + 4 + trie_bytes, n->pool_bytes);
    descent_code code = DESCENT_OK;
    for (uint32_t at = 0; at < n->n_units && !code; at++)
        if (!(n->units[at] & VALUE_BIT) && key_ends(n->units[at])) code = check_key_end(n, at, status);
    return code;
}

descent_code spm_normalizer_load(spm_normalizer *n, const gguf_file *file, const token_search *user_defined,
                                 descent_status *status)
{
    static const char prefix_key[] = "tokenizer.ggml.add_space_prefix";
    static const char extra_key[] = "tokenizer.ggml.remove_extra_whitespaces";
    descent_code code = DESCENT_OK;
    *n = (spm_normalizer){.add_space_prefix = true, .user_defined = user_defined};
    if (gguf_has(file, prefix_key)) code = gguf_get_bool(file, prefix_key, &n->add_space_prefix, status);
    if (!code && gguf_has(file, extra_key)) code = gguf_get_bool(file, extra_key, &n->remove_extra_whitespaces, status);
    if (code || !gguf_has(file, CHARSMAP_KEY)) return code;
    gguf_array blob;
    code = gguf_get_u8_array(file, CHARSMAP_KEY, &blob, status);
    return code || blob.count == 0 ? code : load_table(n, blob, status);
}

void spm_normalizer_free(spm_normalizer *n)
{
    free(n->units);
    free(n->pool);
}

/* ---- Normalizing ------------------------------------------------------------------------------------------------- */

/* What the first bytes of a text become. */
typedef struct replacement {
    size_t consumed;
    const char *text;
    size_t bytes;
} replacement;

/* The longest key of the table that text begins with; 0 when there is none. */
static size_t longest_key(const spm_normalizer *n, const char *text, size_t bytes, const char **value)
{
    size_t longest = 0;
    uint32_t at = unit_offset(n->units[0]);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= n->n_units) break;
        uint32_t unit = n->units[at];
        if ((unit & (VALUE_BIT | 0xFF)) != byte) break;
        at ^= unit_offset(unit);
        if (key_ends(unit)) {
            longest = i + 1;
            *value = n->pool + (n->units[at] & ~VALUE_BIT);
        }
    }
    return longest;
}

/* Of the text from `at` on. */
static replacement replace_first(const spm_normalizer *n, const char *text, size_t bytes, size_t at, token_matches *found)
{
    const token_match *match = token_matches_at(found, at);
    text += at;
    bytes -= at;
    if (match) return (replacement){match->bytes, text, match->bytes};
    const char *value;
    size_t length = n->units ? longest_key(n, text, bytes, &value) : 0;
    if (length > 0) return (replacement){length, value, strlen(value)};
    if (utf8_scan(text, bytes, &length) == UTF8_CHARACTER) return (replacement){length, text, length};
    return (replacement){1, "\xEF\xBF\xBD", 3}; /* a byte that is no UTF-8 */
}

/* Appends bytes, spaces as U+2581. */
static descent_code append(text_buffer *out, const char *text, size_t bytes, descent_status *status)
{
    descent_code code = text_buffer_reserve(out, SPM_SPACE_BYTES * bytes, status);
    if (code) return code;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == ' ') {
            memcpy(out->bytes + out->count, SPM_SPACE, SPM_SPACE_BYTES);
            out->count += SPM_SPACE_BYTES;
        } else {
            out->bytes[out->count++] = text[i];
        }
    }
    return DESCENT_OK;
}

/* Bytes at the start that become single spaces. */
static size_t leading_spaces(const spm_normalizer *n, const char *text, size_t bytes, token_matches *found)
{
    size_t at = 0;
    while (at < bytes) {
        replacement r = replace_first(n, text, bytes, at, found);
        if (r.bytes != 1 || r.text[0] != ' ') break;
        at += r.consumed;
    }
    return at;
}

/* A U+2581 that the text itself holds counts as a space here, as it does in the library. */
static void drop_trailing_spaces(text_buffer *out)
{
    while (out->count >= SPM_SPACE_BYTES && memcmp(out->bytes + out->count - SPM_SPACE_BYTES, SPM_SPACE, SPM_SPACE_BYTES) == 0)
        out->count -= SPM_SPACE_BYTES;
}

/* `found`: the user-defined tokens in the text. */
static descent_code normalize(const spm_normalizer *n, const char *text, size_t bytes, token_matches *found, text_buffer *out,
                              descent_status *status)
{
    bool squeeze = n->remove_extra_whitespaces;
    size_t at = squeeze ? leading_spaces(n, text, bytes, found) : 0;
    if (at == bytes) return DESCENT_OK;

    descent_code code = n->add_space_prefix ? append(out, " ", 1, status) : DESCENT_OK;
    bool after_space = squeeze;
    while (at < bytes && !code) {
        replacement r = replace_first(n, text, bytes, at, found);
        at += r.consumed;
        while (after_space && r.bytes > 0 && r.text[0] == ' ') {
            r.text++;
            r.bytes--;
        }
        if (r.bytes == 0) continue;
        code = append(out, r.text, r.bytes, status);
        after_space = squeeze && r.text[r.bytes - 1] == ' ';
    }
    if (squeeze && !code) drop_trailing_spaces(out);
    return code;
}

descent_code spm_normalize(const spm_normalizer *n, const char *text, size_t bytes, text_buffer *out, descent_status *status)
{
    token_matches found = {0};
    out->count = 0;
    descent_code code = token_search_all(n->user_defined, text, bytes, &found, status);
    if (!code) code = normalize(n, text, bytes, &found, out, status);
    free(found.list);
    return code;
}
