/* test_gguf.c: the GGUF reader opens what is right and refuses, by name, what is wrong. Files come from the tests' own
 * writer; wrong ones are right ones with one field changed, cut short, or with random bits flipped. Every file is handed
 * over in an allocation of its exact size, so that the sanitizers see one byte read too many. Values are the business of
 * test_gguf_values.c, what a path leads to that of test_gguf_paths.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fuzz/touch_gguf.h"
#include "gguf_writer.h"

/* ---- Files -------------------------------------------------------------------------------------------------------- */

typedef struct bytes {
    uint8_t *data;
    size_t size;
} bytes;

/* An allocation of exactly `size` bytes that begins as `from` does. */
static bytes copy_of(bytes from, size_t size)
{
    bytes to = {malloc(size ? size : 1), size};
    assert_non_null(to.data);
    memset(to.data, 0, size ? size : 1);
    memcpy(to.data, from.data, size < from.size ? size : from.size);
    return to;
}

static bytes built(gguf_writer *writer)
{
    bytes padded, exact;
    padded.data = gguf_writer_build(writer, &padded.size);
    exact = copy_of(padded, padded.size);
    free(padded.data);
    gguf_writer_destroy(writer);
    return exact;
}

/* Tensors "w" F32 [3, 2], "h" F16 [5], "b" BF16 [1, 2, 2], "q" Q8_0 [64, 3]; and metadata of several types. */
static gguf_writer *sample_writer(void)
{
    static float values[192];
    for (int i = 0; i < 192; i++) values[i] = (float)(i % 17) - 8;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_string(writer, "general.architecture", "nrgpt");
    gguf_writer_u32(writer, "nrgpt.steps", 12);
    gguf_writer_f32(writer, "nrgpt.norm_epsilon", 1e-5f);
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", (const char *const[]){"a", "bc", ""}, 3);
    gguf_writer_f32s(writer, "tokenizer.ggml.scores", (const float[]){0, -1, -2}, 3);
    gguf_writer_bool(writer, "tokenizer.ggml.add_bos_token", true);
    gguf_writer_tensor(writer, "w", GGUF_WRITER_F32, 2, (const uint64_t[]){3, 2}, values);
    gguf_writer_tensor(writer, "h", GGUF_WRITER_F16, 1, (const uint64_t[]){5}, values);
    gguf_writer_tensor(writer, "b", GGUF_WRITER_BF16, 3, (const uint64_t[]){1, 2, 2}, values);
    gguf_writer_tensor(writer, "q", GGUF_WRITER_Q8_0, 2, (const uint64_t[]){64, 3}, values);
    return writer;
}

/* Where the length of the name `name` stands in the header. */
static size_t find_name(bytes file, const char *name)
{
    uint64_t length = strlen(name);
    for (size_t i = 24; i + 8 + length <= file.size; i++)
        if (memcmp(file.data + i, &length, 8) == 0 && memcmp(file.data + i + 8, name, length) == 0) return i;
    fail_msg("no name %s in the file", name);
    return 0;
}

/* Where the value type of a key, or the number of dimensions of a tensor, stands. */
static size_t after_name(bytes file, const char *name)
{
    return find_name(file, name) + 8 + strlen(name);
}

static void set_u32(bytes file, size_t at, uint32_t value)
{
    assert_true(at + sizeof value <= file.size);
    memcpy(file.data + at, &value, sizeof value);
}

static void set_u64(bytes file, size_t at, uint64_t value)
{
    assert_true(at + sizeof value <= file.size);
    memcpy(file.data + at, &value, sizeof value);
}

static gguf_file *open_good(bytes file)
{
    gguf_file *opened = NULL;
    descent_status status;
    if (gguf_open_memory(file.data, file.size, &opened, &status)) fail_msg("%s", status.message);
    assert_int_equal(status.code, DESCENT_OK);
    assert_string_equal(status.message, "");
    return opened;
}

/* The file is refused with this code, and the message holds both texts. Releases the file's bytes. */
static void refuse(bytes file, descent_code code, const char *where, const char *what)
{
    gguf_file *const untouched = (gguf_file *)(uintptr_t)64;
    gguf_file *opened = untouched;
    descent_status status = {DESCENT_OK, ""};
    descent_code found = gguf_open_memory(file.data, file.size, &opened, &status);
    if (found != code || status.code != code || !strstr(status.message, where) || !strstr(status.message, what))
        fail_msg("expected code %d, '%s' and '%s'; found %d: %s", (int)code, where, what, (int)found, status.message);
    assert_ptr_equal(opened, untouched);
    assert_int_equal(gguf_open_memory(file.data, file.size, &opened, NULL), code);
    free(file.data);
}

static bytes sample(void)
{
    return built(sample_writer());
}

static void refuse_u32(const char *name, size_t past_name, uint32_t value, const char *where, const char *what)
{
    bytes file = sample();
    set_u32(file, after_name(file, name) + past_name, value);
    refuse(file, DESCENT_BAD_FILE, where, what);
}

static void refuse_u64(const char *name, size_t past_name, uint64_t value, const char *where, const char *what)
{
    bytes file = sample();
    set_u64(file, after_name(file, name) + past_name, value);
    refuse(file, DESCENT_BAD_FILE, where, what);
}

/* ---- What is right ------------------------------------------------------------------------------------------------ */

static void opens_what_was_written(void **state)
{
    (void)state;
    bytes bytes_ = sample();
    gguf_file *file = open_good(bytes_);
    assert_ptr_equal(gguf_data(file), bytes_.data);
    assert_int_equal(gguf_bytes(file), bytes_.size);
    assert_int_equal(gguf_metadata_count(file), 6);
    assert_string_equal(gguf_metadata_key(file, 0), "general.architecture");
    assert_string_equal(gguf_metadata_key(file, 5), "tokenizer.ggml.add_bos_token");
    assert_int_equal(gguf_metadata_type(file, 1), GGUF_VALUE_U32);
    assert_int_equal(gguf_metadata_type(file, 3), GGUF_VALUE_ARRAY);
    assert_int_equal(gguf_tensor_count(file), 4);

    static const struct {
        const char *name;
        uint32_t type, n_dims;
        uint64_t dims[4], numbers, bytes;
    } expected[] = {{"w", GGUF_F32, 2, {3, 2, 1, 1}, 6, 24},
                    {"h", GGUF_F16, 1, {5, 1, 1, 1}, 5, 10},
                    {"b", GGUF_BF16, 3, {1, 2, 2, 1}, 4, 8},
                    {"q", GGUF_Q8_0, 2, {64, 3, 1, 1}, 192, 204}};
    for (size_t i = 0; i < 4; i++) {
        const gguf_tensor *tensor = gguf_tensor_at(file, i);
        assert_string_equal(tensor->name, expected[i].name);
        assert_int_equal(tensor->type, expected[i].type);
        assert_int_equal(tensor->n_dims, expected[i].n_dims);
        assert_memory_equal(tensor->dims, expected[i].dims, sizeof tensor->dims);
        assert_int_equal(tensor->numbers, expected[i].numbers);
        assert_int_equal(tensor->bytes, expected[i].bytes);
        assert_ptr_equal(gguf_find_tensor(file, expected[i].name), tensor);
    }
    assert_null(gguf_find_tensor(file, "x"));
    assert_null(gguf_find_tensor(file, ""));
    (void)touch_gguf(file);
    gguf_close(file);
    free(bytes_.data);
    gguf_close(NULL);
}

/* Bit patterns worked out by hand from the formats' definitions. */
static void tensor_data_is_where_it_should_be(void **state)
{
    (void)state;
    static const uint64_t seven[] = {7}, row[] = {32};
    static const float values[] = {1, -2, 65504, 65520, 0x1p-24f, 0x1p-25f, 1 + 0x1p-11f};
    static const uint32_t f32[] = {0x3f800000, 0xc0000000, 0x477fe000, 0x477ff000, 0x33800000, 0x33000000, 0x3f801000};
    static const uint16_t f16[] = {0x3c00, 0xc000, 0x7bff, 0x7c00, 0x0001, 0x0000, 0x3c00};
    static const uint16_t bf16[] = {0x3f80, 0xc000, 0x4780, 0x4780, 0x3380, 0x3300, 0x3f80};
    float block[32] = {127, -127, 1, -1.4f, 63.6f}; /* scale 1 */
    static const uint8_t q8_0[] = {0x00, 0x3c, 127, 0x81, 1, 0xff, 64};
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_tensor(writer, "bf16", GGUF_WRITER_BF16, 1, seven, values);
    gguf_writer_tensor(writer, "q8_0", GGUF_WRITER_Q8_0, 1, row, block);
    gguf_writer_tensor(writer, "f32", GGUF_WRITER_F32, 1, seven, values);
    gguf_writer_tensor(writer, "f16", GGUF_WRITER_F16, 1, seven, values);
    bytes bytes_ = built(writer);
    gguf_file *file = open_good(bytes_);
    assert_memory_equal(gguf_find_tensor(file, "f32")->data, f32, sizeof f32);
    assert_memory_equal(gguf_find_tensor(file, "f16")->data, f16, sizeof f16);
    assert_memory_equal(gguf_find_tensor(file, "bf16")->data, bf16, sizeof bf16);
    assert_memory_equal(gguf_find_tensor(file, "q8_0")->data, q8_0, sizeof q8_0);
    assert_int_equal(gguf_find_tensor(file, "q8_0")->bytes, 34);
    assert_int_equal(gguf_writer_to_f16(1 + 3 * 0x1p-11f), 0x3c02);
    assert_int_equal(gguf_writer_to_f16(0x1.ffep0f + 0x1p-11f), 0x4000);
    assert_int_equal(gguf_writer_to_bf16(1 + 3 * 0x1p-8f), 0x3f82);
    gguf_close(file);
    free(bytes_.data);
}

static void opens_an_empty_list(void **state)
{
    (void)state;
    bytes bytes_ = built(gguf_writer_create());
    bytes bare = copy_of(bytes_, 24);
    gguf_file *file = open_good(bare);
    assert_int_equal(gguf_metadata_count(file), 0);
    assert_int_equal(gguf_tensor_count(file), 0);
    assert_null(gguf_find_tensor(file, "w"));
    assert_false(gguf_has(file, "general.name"));
    (void)touch_gguf(file);
    gguf_close(file);
    free(bare.data);
    free(bytes_.data);
}

static void any_alignment_and_longest_names(void **state)
{
    (void)state;
    static const uint32_t alignments[] = {8, 16, 4096, 1u << 20};
    char tensor_name[65], *key = malloc(65536);
    assert_non_null(key);
    memset(tensor_name, 'n', 64);
    memset(key, 'k', 65535);
    tensor_name[64] = key[65535] = '\0';
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        gguf_writer *writer = gguf_writer_create();
        gguf_writer_u8(writer, key, 1);
        gguf_writer_alignment(writer, alignments[i]);
        gguf_writer_tensor(writer, "\xc3\xa9", GGUF_WRITER_F32, 1, (const uint64_t[]){1}, (const float[]){2});
        gguf_writer_tensor(writer, tensor_name, GGUF_WRITER_F32, 4, (const uint64_t[]){1, 1, 1, 1}, (const float[]){3});
        bytes bytes_ = built(writer);
        gguf_file *file = open_good(bytes_);
        float value;
        memcpy(&value, gguf_find_tensor(file, tensor_name)->data, sizeof value);
        assert_true(value == 3);
        assert_true(gguf_has(file, key));
        (void)touch_gguf(file);
        gguf_close(file);
        free(bytes_.data);
    }
    free(key);
}

static void many_names_are_found(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    gguf_writer *writer = gguf_writer_create();
    char name[32];
    for (int i = 0; i < MANY; i++) {
        uint8_t data = (uint8_t)i;
        (void)snprintf(name, sizeof name, "blk.%d.x", i * 7919 % MANY);
        gguf_writer_u32(writer, name, (uint32_t)i);
        gguf_writer_tensor_raw(writer, name, 24, 1, (const uint64_t[]){1}, &data, 1);
    }
    bytes bytes_ = built(writer);
    gguf_file *file = open_good(bytes_);
    for (int i = 0; i < MANY; i++) {
        uint32_t value = 0;
        (void)snprintf(name, sizeof name, "blk.%d.x", i * 7919 % MANY);
        assert_int_equal(gguf_get_u32(file, name, 0, MANY, &value, NULL), DESCENT_OK);
        assert_int_equal(value, i);
        assert_ptr_equal(gguf_find_tensor(file, name), gguf_tensor_at(file, (size_t)i));
    }
    gguf_close(file);
    free(bytes_.data);
}

static void lists_types_it_cannot_compute_with(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        const char *name;
        uint32_t block, bytes;
    } types[] = {{2, "Q4_0", 32, 18},    {12, "Q4_K", 256, 144}, {14, "Q6_K", 256, 210}, {24, "I8", 1, 1},
                 {19, "IQ1_S", 256, 50}, {28, "F64", 1, 8},      {39, "MXFP4", 32, 17}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        uint8_t data[512] = {0};
        const uint64_t dims[] = {2 * types[i].block};
        gguf_writer *writer = gguf_writer_create();
        gguf_writer_tensor_raw(writer, "t", types[i].type, 1, dims, data, 2 * types[i].bytes);
        bytes bytes_ = built(writer);
        gguf_file *file = open_good(bytes_);
        assert_string_equal(gguf_type_name(gguf_tensor_at(file, 0)->type), types[i].name);
        assert_int_equal(gguf_tensor_at(file, 0)->bytes, 2 * types[i].bytes);
        gguf_close(file);
        free(bytes_.data);
    }
    assert_string_equal(gguf_type_name(4), "unknown");
    assert_null(gguf_type_find(5));
    assert_string_equal(gguf_value_type_name(GGUF_VALUE_F64), "f64");
    assert_string_equal(gguf_value_type_name(13), "unknown");
}

/* ---- The fixed header --------------------------------------------------------------------------------------------- */

static void refuses_other_files_and_versions(void **state)
{
    (void)state;
    bytes file = sample();
    file.data[0] = 'P';
    refuse(file, DESCENT_BAD_FILE, "50 47 55 46", "expected 47 47 55 46");
    static const uint32_t versions[] = {0, 1, 2, 4, 0x10003};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        char version[32];
        (void)snprintf(version, sizeof version, "version is %u;", versions[i]);
        file = sample();
        set_u32(file, 4, versions[i]);
        refuse(file, DESCENT_UNSUPPORTED, version, "only version 3");
    }
    file = sample();
    set_u32(file, 4, 0x03000000);
    refuse(file, DESCENT_UNSUPPORTED, "big-endian", "0x03000000");
}

static void refuses_impossible_counts(void **state)
{
    (void)state;
    static const uint64_t counts[] = {100, (uint64_t)1 << 40, UINT64_MAX / 14 + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        bytes file = sample();
        set_u64(file, 16, counts[i]);
        refuse(file, DESCENT_BAD_FILE, "metadata entries", "hold at most");
        file = sample();
        set_u64(file, 8, counts[i]);
        refuse(file, DESCENT_BAD_FILE, "tensors", "hold at most");
    }
    /* One more or less of either: what follows is read as what it is not. */
    static const struct {
        size_t at;
        uint64_t count;
        const char *where;
    } near_misses[] = {{16, 5, "tensor 0 "}, {16, 7, "tensor 0 "}, {8, 5, "tensor 4 "}};
    for (size_t i = 0; i < sizeof near_misses / sizeof near_misses[0]; i++) {
        bytes file = sample();
        set_u64(file, near_misses[i].at, near_misses[i].count);
        refuse(file, DESCENT_BAD_FILE, near_misses[i].where, "");
    }
}

static void refuses_unaligned_memory(void **state)
{
    (void)state;
    bytes file = sample();
    gguf_file *opened = NULL;
    descent_status status;
    assert_int_equal(gguf_open_memory(file.data + 1, file.size - 1, &opened, &status), DESCENT_BAD_ARGUMENT);
    assert_non_null(strstr(status.message, "aligned to 8"));
    assert_null(opened);
    free(file.data);
}

/* ---- Cut short ---------------------------------------------------------------------------------------------------- */

static void refuses_every_truncation(void **state)
{
    (void)state;
    bytes whole = sample();
    gguf_writer *writer = sample_writer();
    gguf_writer_layout layout = gguf_writer_layout_of(writer);
    gguf_writer_destroy(writer);
    for (size_t size = 0; size < layout.data_end; size++) {
        const char *where = size < 24 ? "not a usable GGUF file" : size < layout.tensors_end ? "" : "tensor ";
        const char *what = size < layout.tensors_end ? "" : "cut short?";
        refuse(copy_of(whole, size), DESCENT_BAD_FILE, where, what);
    }
    bytes unpadded = copy_of(whole, layout.data_end);
    gguf_file *file = open_good(unpadded);
    (void)touch_gguf(file);
    gguf_close(file);
    free(unpadded.data);
    free(whole.data);
}

static void refuses_every_fiftieth(void **state)
{
    (void)state;
    static float values[6400];
    gguf_writer *writer = sample_writer();
    for (int i = 0; i < 4; i++) {
        const char name[] = {(char)('0' + i), '\0'};
        gguf_writer_tensor(writer, name, GGUF_WRITER_F32, 2, (const uint64_t[]){64, 100}, values);
    }
    bytes whole = built(writer);
    for (size_t i = 0; i < 50; i++) refuse(copy_of(whole, whole.size * i / 50), DESCENT_BAD_FILE, "", "");
    gguf_file *file = open_good(whole);
    gguf_close(file);
    free(whole.data);
}

/* ---- Metadata, field by field ------------------------------------------------------------------------------------- */

static void refuses_bad_names(void **state)
{
    (void)state;
    static const struct {
        uint8_t with[3];
        const char *what;
    } names[] = {{{0, 's', 't'}, "control"},        {{'\n', 's', 't'}, "control"},     {{0x1b, '[', 'm'}, "control"},
                 {{0x7f, 's', 't'}, "control"},     {{0xc2, 0x85, 't'}, "control"},    {{0xff, 's', 't'}, "not UTF-8"},
                 {{0x80, 's', 't'}, "not UTF-8"},   {{0xc0, 0x80, 't'}, "not UTF-8"},  {{0xc1, 0xbf, 't'}, "not UTF-8"},
                 {{0xe0, 0x9f, 0xbf}, "not UTF-8"}, {{0xed, 0xa0, 0x80}, "not UTF-8"}, {{0xf5, 0x80, 0x80}, "not UTF-8"},
                 {{0xe2, 0x82, 'x'}, "not UTF-8"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bytes file = sample();
        memcpy(file.data + find_name(file, "nrgpt.steps") + 8 + 6, names[i].with, 3);
        refuse(file, DESCENT_BAD_FILE, "metadata entry 1 at byte", names[i].what);
        file = sample();
        size_t at = find_name(file, "q");
        file.data[at + 8] = names[i].with[0];
        refuse(file, DESCENT_BAD_FILE, "tensor 3 at byte", names[i].with[0] < 0x80 ? "control" : "not UTF-8");
    }
    static const uint64_t lengths[] = {0, 65536, (uint64_t)1 << 40, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        bytes file = sample();
        set_u64(file, find_name(file, "nrgpt.steps"), lengths[i]);
        refuse(file, DESCENT_BAD_FILE, "metadata entry 1 at byte", "expected 1 to 65535");
        file = sample();
        set_u64(file, find_name(file, "h"), lengths[i]);
        refuse(file, DESCENT_BAD_FILE, "tensor 1 at byte", "expected 1 to 64");
    }
    bytes file = sample();
    set_u64(file, find_name(file, "nrgpt.steps"), 65535);
    refuse(file, DESCENT_BAD_FILE, "metadata entry 1 at byte", "65535 x 1 bytes");
    file = sample();
    set_u64(file, find_name(file, "h"), 65);
    refuse(file, DESCENT_BAD_FILE, "tensor 1 at byte", "65 bytes long");
}

static void refuses_bad_values(void **state)
{
    (void)state;
    refuse_u32("nrgpt.steps", 0, 13, "1 'nrgpt.steps'", "value type 13");
    refuse_u32("nrgpt.steps", 0, UINT32_MAX, "1 'nrgpt.steps'", "value type 4294967295");
    static const uint64_t sizes[] = {(uint64_t)1 << 20, (uint64_t)1 << 40, (uint64_t)1 << 61, (uint64_t)1 << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        refuse_u64("general.architecture", 4, sizes[i], "0 'general.architecture'", "a string");
        refuse_u64("tokenizer.ggml.tokens", 8, sizes[i], "3 'tokenizer.ggml.tokens'", "a list of strings");
        refuse_u64("tokenizer.ggml.tokens", 16, sizes[i], "3 'tokenizer.ggml.tokens'", "a string");
        refuse_u64("tokenizer.ggml.scores", 8, sizes[i], "4 'tokenizer.ggml.scores'", "an array");
    }
    refuse_u32("tokenizer.ggml.scores", 4, 13, "4 'tokenizer.ggml.scores'", "value type 13");
    bytes file = sample();
    file.data[after_name(file, "tokenizer.ggml.add_bos_token") + 4] = 2;
    refuse(file, DESCENT_BAD_FILE, "'tokenizer.ggml.add_bos_token'", "a bool is 2");
}

static void shortens_long_keys_in_messages(void **state)
{
    (void)state;
    char key[203];
    for (size_t i = 0; i < 100; i++) memcpy(key + 1 + 2 * i, "\xc3\xa9", 2);
    key[0] = 'k';
    key[201] = '\0';
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_raw(writer, key, 99, "", 0);
    char shown[128] = "'k";
    for (size_t i = 0; i < 47; i++) strcat(shown, "\xc3\xa9");
    strcat(shown, "...'");
    refuse(built(writer), DESCENT_BAD_FILE, shown, "value type 99");
}

static void refuses_keys_that_stand_twice(void **state)
{
    (void)state;
    gguf_writer *writer = sample_writer();
    gguf_writer_string(writer, "nrgpt.steps", "13");
    refuse(built(writer), DESCENT_BAD_FILE, "'nrgpt.steps'", "twice");
}

/* An array `depth` deep: each holds one array, the innermost one u8. */
static bytes nested(uint32_t depth)
{
    uint8_t value[256];
    size_t size = 0;
    for (uint32_t i = 1; i <= depth; i++) {
        const uint32_t type = i < depth ? GGUF_VALUE_ARRAY : GGUF_VALUE_U8;
        const uint64_t count = 1;
        memcpy(value + size, &type, 4);
        memcpy(value + size + 4, &count, 8);
        size += 12;
    }
    value[size++] = 7;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_raw(writer, "n", GGUF_VALUE_ARRAY, value, size);
    gguf_writer_u8(writer, "next", 1);
    return built(writer);
}

static void bounds_arrays_in_arrays(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 4; depth++) {
        bytes bytes_ = nested(depth);
        gguf_file *file = open_good(bytes_);
        assert_true(gguf_has(file, "next"));
        (void)touch_gguf(file);
        gguf_close(file);
        free(bytes_.data);
    }
    refuse(nested(5), DESCENT_UNSUPPORTED, "metadata entry 0 'n'", "more than 4 deep");
    refuse(nested(20), DESCENT_UNSUPPORTED, "metadata entry 0 'n'", "more than 4 deep");
    bytes file = nested(2);
    set_u64(file, after_name(file, "n") + 8, (uint64_t)1 << 40);
    refuse(file, DESCENT_BAD_FILE, "metadata entry 0 'n'", "a list of arrays");
}

/* ---- Tensors, field by field -------------------------------------------------------------------------------------- */

static void refuses_bad_shapes(void **state)
{
    (void)state;
    refuse_u32("w", 0, 0, "tensor 0 'w'", "0 dimensions, expected 1 to 4");
    refuse_u32("w", 0, 5, "tensor 0 'w'", "5 dimensions, expected 1 to 4");
    refuse_u32("w", 0, UINT32_MAX, "tensor 0 'w'", "expected 1 to 4");
    refuse_u64("w", 4, 0, "tensor 0 'w'", "dimension 0 is 0");
    refuse_u64("w", 12, 0, "tensor 0 'w'", "dimension 1 is 0");
    refuse_u64("w", 4, UINT64_MAX, "tensor 0 'w'", "overflows at dimension 0");
    refuse_u64("w", 12, (uint64_t)1 << 62, "tensor 0 'w'", "overflows at dimension 1");
    refuse_u64("w", 12, (uint64_t)1 << 60, "tensor 0 'w'", "overflow a file's size");
    refuse_u64("w", 12, (uint64_t)1 << 40, "tensor 0 'w'", "past the end of the file");
    refuse_u64("w", 12, 3000, "tensor 0 'w'", "past the end of the file");
    refuse_u64("q", 4, 33, "tensor 3 'q'", "rows of 33 numbers");
    refuse_u32("w", 20, 4, "tensor 0 'w'", "tensor type 4");
    refuse_u32("w", 20, 9999, "tensor 0 'w'", "tensor type 9999");
    refuse_u32("w", 20, GGUF_Q8_0, "tensor 0 'w'", "rows of 3 numbers are no whole number of Q8_0 blocks of 32");
}

static void refuses_bad_offsets(void **state)
{
    (void)state;
    refuse_u64("q", 24, 1, "tensor 3 'q'", "no multiple of the alignment, 32");
    refuse_u64("q", 24, UINT64_MAX, "tensor 3 'q'", "no multiple of the alignment");
    refuse_u64("q", 24, UINT64_MAX - 31, "tensor 3 'q'", "past the end of the file");
    refuse_u64("q", 24, (uint64_t)1 << 63, "tensor 3 'q'", "past the end of the file");
    refuse_u64("q", 24, 4096, "tensor 3 'q'", "past the end of the file");
    refuse_u64("q", 24, 128, "tensor 3 'q'", "past the end of the file");
    refuse_u64("q", 24, 64, "tensors 'b' and 'q'", "overlap");
    refuse_u64("h", 16, 0, "tensors '", "overlap");
}

static void refuses_names_that_stand_twice(void **state)
{
    (void)state;
    bytes file = sample();
    file.data[find_name(file, "b") + 8] = 'w';
    refuse(file, DESCENT_BAD_FILE, "tensor 'w'", "twice");
}

static void refuses_bad_alignments(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 1, 4, 12, 33, 1u << 21, UINT32_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gguf_writer *writer = sample_writer();
        gguf_writer_u32(writer, "general.alignment", wrong[i]);
        bool in_range = wrong[i] >= 8 && wrong[i] <= 1u << 20;
        refuse(built(writer), DESCENT_BAD_FILE, "general.alignment", in_range ? "power of two" : "from 8 to 1048576");
    }
    gguf_writer *writer = sample_writer();
    gguf_writer_string(writer, "general.alignment", "32");
    refuse(built(writer), DESCENT_BAD_FILE, "general.alignment", "found string 32");
}

/* ---- Anything at all ---------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

static void survives_random_bits(void **state)
{
    (void)state;
    bytes whole = sample();
    gguf_writer *writer = sample_writer();
    size_t header = gguf_writer_layout_of(writer).tensors_end;
    gguf_writer_destroy(writer);
    uint64_t random = 20240229;
    int opened = 0, refused = 0;
    for (int i = 0; i < 20000; i++) {
        bytes file = copy_of(whole, whole.size);
        for (uint64_t flips = 1 + next_random(&random) % 4; flips; flips--) {
            uint64_t bit = next_random(&random) % (8 * header);
            file.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        gguf_file *got = NULL;
        descent_status status;
        descent_code code = gguf_open_memory(file.data, file.size, &got, &status);
        touch_status(&status, code);
        if (got) (void)touch_gguf(got);
        opened += code == DESCENT_OK;
        refused += code != DESCENT_OK;
        gguf_close(got);
        free(file.data);
    }
    assert_true(opened > 1000);
    assert_true(refused > 1000);
    free(whole.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_what_was_written),
        cmocka_unit_test(tensor_data_is_where_it_should_be),
        cmocka_unit_test(opens_an_empty_list),
        cmocka_unit_test(any_alignment_and_longest_names),
        cmocka_unit_test(many_names_are_found),
        cmocka_unit_test(lists_types_it_cannot_compute_with),
        cmocka_unit_test(refuses_other_files_and_versions),
        cmocka_unit_test(refuses_impossible_counts),
        cmocka_unit_test(refuses_unaligned_memory),
        cmocka_unit_test(refuses_every_truncation),
        cmocka_unit_test(refuses_every_fiftieth),
        cmocka_unit_test(refuses_bad_names),
        cmocka_unit_test(refuses_bad_values),
        cmocka_unit_test(shortens_long_keys_in_messages),
        cmocka_unit_test(refuses_keys_that_stand_twice),
        cmocka_unit_test(bounds_arrays_in_arrays),
        cmocka_unit_test(refuses_bad_shapes),
        cmocka_unit_test(refuses_bad_offsets),
        cmocka_unit_test(refuses_names_that_stand_twice),
        cmocka_unit_test(refuses_bad_alignments),
        cmocka_unit_test(survives_random_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
