/* encode_tool.c: the tokenizer of a GGUF file, driven through its standard input by test_sentencepiece.py.
 *
 *     encode_tool MODEL.gguf
 *
 * A request is one letter, a u32 length and that many bytes; an answer a descent_code (u8), a u32 length and the bytes.
 *     e  a text: its ids (u32 each)          s  the same with special tokens parsed
 *     d  ids: for each push of the streaming decoder and for its end a u32 length and the text
 *     P  bytes: the same for utf8_stream with one byte a push, one U+FFFD per maximal subpart     B  one per byte
 * A failed request is answered by its code and message. */
#include "status.h"
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    unsigned char *bytes;
    size_t count, room;
} answer;

static void add(answer *a, const void *bytes, size_t count)
{
    if (a->count + count > a->room) {
        a->room = 2 * (a->count + count);
        a->bytes = realloc(a->bytes, a->room);
        if (!a->bytes) exit(2);
    }
    if (count) memcpy(a->bytes + a->count, bytes, count);
    a->count += count;
}

static void add_text(answer *a, const char *text, size_t bytes)
{
    uint32_t length = (uint32_t)bytes;
    add(a, &length, 4);
    add(a, text, bytes);
}

static descent_code encode(const descent_tokenizer *t, const char *text, size_t bytes, int flags, answer *a)
{
    descent_status status;
    uint32_t *ids;
    size_t count;
    descent_code code = descent_tokenizer_encode(t, text, bytes, flags, &ids, &count, &status);
    if (code) {
        add(a, status.message, strlen(status.message));
        return code;
    }
    add(a, ids, count * sizeof *ids);
    descent_free(ids);
    return code;
}

static descent_code decode(descent_decoder *decoder, const char *payload, size_t bytes, answer *a)
{
    size_t length;
    for (size_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t id;
        memcpy(&id, payload + i, 4);
        const char *text = descent_decoder_push(decoder, id, &length);
        add_text(a, text, length);
    }
    const char *text = descent_decoder_finish(decoder, &length);
    add_text(a, text, length);
    return DESCENT_OK;
}

static descent_code stream(utf8_replacement replacement, const char *bytes, size_t count, answer *a)
{
    utf8_stream s = {.replacement = replacement};
    char out[UTF8_STREAM_ROOM(1)];
    for (size_t i = 0; i < count; i++) {
        size_t length = utf8_stream_push(&s, bytes + i, 1, out);
        add_text(a, out, length);
    }
    size_t length = utf8_stream_finish(&s, out);
    add_text(a, out, length);
    return DESCENT_OK;
}

static descent_code serve(char letter, const char *payload, size_t bytes, const descent_tokenizer *t, descent_decoder *decoder,
                          answer *a)
{
    switch (letter) {
    case 'e':
        return encode(t, payload, bytes, 0, a);
    case 's':
        return encode(t, payload, bytes, DESCENT_PARSE_SPECIAL, a);
    case 'd':
        return decode(decoder, payload, bytes, a);
    case 'P':
        return stream(UTF8_PER_SUBPART, payload, bytes, a);
    case 'B':
        return stream(UTF8_PER_BYTE, payload, bytes, a);
    default:
        exit(2);
    }
}

int main(int argc, char **argv)
{
    descent_status status;
    gguf_file *file;
    descent_tokenizer *tokenizer;
    descent_decoder *decoder;
    if (argc != 2) return 2;
    if (gguf_open(argv[1], &file, &status) || tokenizer_load(file, 1, &tokenizer, &status)) {
        (void)fprintf(stderr, "%s\n", status.message);
        return 1;
    }
    gguf_close(file); /* a tokenizer outlives its file */
    if (!tokenizer || descent_decoder_create(tokenizer, &decoder, &status)) return 1;

    char letter;
    answer a = {.bytes = malloc(64), .room = 64};
    char *payload = NULL;
    if (!a.bytes) return 2;
    while (fread(&letter, 1, 1, stdin) == 1) {
        uint32_t bytes;
        if (fread(&bytes, 4, 1, stdin) != 1) return 2;
        payload = realloc(payload, bytes ? bytes : 1);
        if (!payload || fread(payload, 1, bytes, stdin) != bytes) return 2;
        a.count = 0;
        unsigned char code = (unsigned char)serve(letter, payload, bytes, tokenizer, decoder, &a);
        bytes = (uint32_t)a.count;
        if (fwrite(&code, 1, 1, stdout) != 1 || fwrite(&bytes, 4, 1, stdout) != 1 ||
            fwrite(a.bytes, 1, a.count, stdout) != a.count || fflush(stdout))
            return 2;
    }
    free(payload);
    free(a.bytes);
    descent_decoder_destroy(decoder);
    tokenizer_free(tokenizer);
    return 0;
}
