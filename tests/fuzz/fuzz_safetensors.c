/* fuzz_safetensors.c: libFuzzer's entry to the reader of states that come with a request (server/safetensors.c). The input is a
 * byte that says how wide the model is, and a file; read as it is and as base64 of it. It is refused with a message, or gives
 * vectors that are in it, which written again are read as the same. */
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds) abort();
}

static void check_again(const safetensors_vector *vectors, size_t count, size_t width)
{
    static const char *const metadata[] = {"format", "descent.states", NULL};
    char message[SAFETENSORS_MESSAGE];
    safetensors_vector *again = NULL;
    size_t n = 0;
    json_text out = {.text = NULL};
    safetensors_write(&out, vectors, count, width, metadata);
    require(!out.failed && safetensors_read((unsigned char *)out.text, out.bytes, width, &again, &n, message) && n == count);
    for (size_t i = 0; i < n; i++) {
        require(!strcmp(again[i].name, vectors[i].name));
        require(!memcmp(again[i].values, vectors[i].values, width * sizeof(float)));
    }
    free(again);
    json_text_release(&out);
}

static void read(const uint8_t *bytes, size_t size, size_t width)
{
    char message[SAFETENSORS_MESSAGE] = "";
    safetensors_vector *vectors;
    size_t count;
    if (safetensors_read(bytes, size, width, &vectors, &count, message)) {
        require(count * width * sizeof(float) <= size);
        for (size_t i = 0; i < count; i++) require(vectors[i].name[0] && strlen(vectors[i].name) < SAFETENSORS_NAME);
        check_again(vectors, count, width);
        free(vectors);
    } else {
        require(message[0] && strlen(message) < SAFETENSORS_MESSAGE && !vectors);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    size_t width = 1u + data[0] % 8, n = size - 1, decoded;
    uint8_t *copy = malloc(n ? n : 1); /* of the exact size, so that reading one byte too far is seen */
    unsigned char *bytes;
    if (!copy) return 0;
    memcpy(copy, data + 1, n);
    read(copy, n, width);
    if (base64_decode((const char *)copy, n, &bytes, &decoded)) {
        require(decoded <= n);
        read(bytes, decoded, width);
        free(bytes);
    }
    free(copy);
    return 0;
}
