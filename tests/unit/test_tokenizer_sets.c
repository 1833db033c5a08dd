/* test_tokenizer_sets.c: the sets of spellings against looking at every one. */
#include "rng.h"
#include "tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The longest control token that text begins with. */
static uint32_t longest_at(const token_string *tokens, const uint8_t *types, uint32_t count, const char *text, size_t bytes)
{
    uint32_t longest = TOKENIZER_NONE;
    for (uint32_t k = 0; k < count; k++)
        if (types[k] == TOKEN_CONTROL && tokens[k].bytes <= bytes && memcmp(tokens[k].text, text, tokens[k].bytes) == 0 &&
            (longest == TOKENIZER_NONE || tokens[k].bytes > tokens[longest].bytes))
            longest = k;
    return longest;
}

/* Random spellings over two letters and NUL, against looking at each. */
static void sets_find_what_a_search_finds(void **state)
{
    (void)state;
    rng r = rng_seeded(5);
    for (int round = 0; round < 200; round++) {
        char bytes[40][6];
        token_string tokens[40];
        uint8_t types[40];
        uint32_t count = 0;
        for (int i = 0; i < 40; i++) {
            uint32_t length = (uint32_t)rng_between(&r, 1, 6);
            for (uint32_t b = 0; b < length; b++) bytes[count][b] = "ab\0"[rng_below(&r, 3)];
            bool twice = false;
            for (uint32_t k = 0; k < count; k++)
                twice = twice || (tokens[k].bytes == length && memcmp(tokens[k].text, bytes[count], length) == 0);
            if (twice) continue;
            tokens[count] = (token_string){bytes[count], length};
            types[count++] = rng_below(&r, 2) ? TOKEN_NORMAL : TOKEN_CONTROL;
        }
        token_index index;
        token_search search = {0};
        token_matches found = {0};
        assert_int_equal(token_index_build(&index, tokens, count, NULL), DESCENT_OK);
        assert_int_equal(token_search_build(&search, tokens, types, count, 1u << TOKEN_CONTROL, NULL), DESCENT_OK);
        for (int probe = 0; probe < 100; probe++) {
            char text[20];
            size_t length = rng_below(&r, 20);
            for (size_t b = 0; b < length; b++) text[b] = "ab\0"[rng_below(&r, 3)];
            uint32_t exact = TOKENIZER_NONE;
            for (uint32_t k = 0; k < count; k++)
                if (tokens[k].bytes == length && memcmp(tokens[k].text, text, length) == 0) exact = k;
            assert_int_equal(token_index_find(&index, text, length), exact);
            assert_int_equal(token_search_all(&search, text, length, &found, NULL), DESCENT_OK);
            for (size_t at = 0; at < length; at++) {
                uint32_t longest = longest_at(tokens, types, count, text + at, length - at);
                const token_match *match = token_matches_at(&found, at);
                assert_int_equal(match ? match->id : TOKENIZER_NONE, longest);
                if (match) assert_int_equal(match->bytes, tokens[longest].bytes);
            }
        }
        token_index_free(&index);
        token_search_free(&search);
        free(found.list);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_find_what_a_search_finds),
    };
    return cmocka_run_group_tests_name("tokenizer_sets", tests, NULL, NULL);
}
