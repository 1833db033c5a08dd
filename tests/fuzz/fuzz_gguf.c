/* fuzz_gguf.c: libFuzzer's entry to the GGUF reader. Any bytes either open, and then everything in the file can be read,
 * or fail with a message. */
#include "touch_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy of the exact size, aligned as the reader demands, so that reading one byte too far is seen. */
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    gguf_file *file = NULL;
    descent_status status;
    descent_code code = gguf_open_memory(copy, size, &file, &status);
    touch_status(&status, code);
    touch_require((file != NULL) == (code == DESCENT_OK), "a file with failure, or none with success");
    if (file) {
        volatile uint64_t sum = touch_gguf(file); /* kept, so that the reads are */
        (void)sum;
    }
    gguf_close(file);
    free(copy);
    return 0;
}
