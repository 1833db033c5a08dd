/* test_gguf_paths.c: files as paths lead to them: mapped, read, of more than 4 GiB, with tensors given back; and what is no
 * file, or claims to be longer than anything. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../fuzz/touch_gguf.h"
#include "gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct scratch {
    char directory[256], path[272];
} scratch;

static int make_scratch(void **state)
{
    scratch *made = calloc(1, sizeof *made);
    if (!made) return -1;
    const char *parent = getenv("TMPDIR");
    (void)snprintf(made->directory, sizeof made->directory, "%.200s/test_gguf.XXXXXX", parent ? parent : P_tmpdir);
    if (!mkdtemp(made->directory)) return -1;
    (void)snprintf(made->path, sizeof made->path, "%s/file", made->directory);
    *state = made;
    return 0;
}

static int remove_scratch(void **state)
{
    scratch *made = *state;
    (void)unlink(made->path);
    int rc = rmdir(made->directory);
    free(made);
    return rc;
}

typedef descent_code (*opener)(const char *path, gguf_file **file, descent_status *status);

static void refuse_path_by(opener open_file, const char *path, descent_code code, const char *what)
{
    gguf_file *opened = NULL;
    descent_status status = {DESCENT_OK, ""};
    descent_code found = open_file(path, &opened, &status);
    if (found != code || !strstr(status.message, what))
        fail_msg("expected %d, '%s'; found %d: %s", (int)code, what, (int)found, status.message);
    if (code == DESCENT_IO) assert_non_null(strstr(status.message, path));
    assert_null(opened);
}

static void refuse_path(const char *path, descent_code code, const char *what)
{
    refuse_path_by(gguf_open, path, code, what);
    refuse_path_by(gguf_read, path, code, what);
}

static void refuses_what_is_no_file(void **state)
{
    scratch *here = *state;
    char below[288];
    refuse_path(here->path, DESCENT_IO, strerror(ENOENT));
    refuse_path(here->directory, DESCENT_IO, "a directory");
    refuse_path("/dev/zero", DESCENT_IO, "a device");
    assert_int_equal(mkfifo(here->path, 0600), 0);
    refuse_path(here->path, DESCENT_IO, "a pipe");
    assert_int_equal(unlink(here->path), 0);
    int descriptor = open(here->path, O_WRONLY | O_CREAT, 0600);
    assert_true(descriptor >= 0);
    refuse_path(here->path, DESCENT_BAD_FILE, "it has 0 bytes");
    (void)snprintf(below, sizeof below, "%s/model", here->path);
    refuse_path(below, DESCENT_IO, strerror(ENOTDIR));
    assert_int_equal(write(descriptor, "GGUF", 4), 4);
    assert_int_equal(close(descriptor), 0);
    refuse_path(here->path, DESCENT_BAD_FILE, "it has 4 bytes");
    /* Root may read whatever the mode says. */
    assert_int_equal(chmod(here->path, 0), 0);
    if (geteuid() != 0)
        refuse_path(here->path, DESCENT_IO, strerror(EACCES));
    else
        refuse_path(here->path, DESCENT_BAD_FILE, "it has 4 bytes");
}

/* A file with metadata and two tensors. Returns what is in it, *bytes long. */
static uint8_t *save_sample(const char *path, size_t *bytes)
{
    static const float values[64] = {1, -2, 3};
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_string(writer, "general.architecture", "nrgpt");
    gguf_writer_strings(writer, "tokenizer.ggml.tokens", (const char *const[]){"a", "bc", ""}, 3);
    gguf_writer_tensor(writer, "w", GGUF_WRITER_F32, 2, (const uint64_t[]){3, 2}, values);
    gguf_writer_tensor(writer, "q", GGUF_WRITER_Q8_0, 1, (const uint64_t[]){64}, values);
    gguf_writer_save(writer, path);
    uint8_t *all = gguf_writer_build(writer, bytes);
    gguf_writer_destroy(writer);
    return all;
}

static void maps_a_file(void **state)
{
    scratch *here = *state;
    size_t bytes;
    uint8_t *expected = save_sample(here->path, &bytes);
    gguf_file *file = NULL;
    assert_int_equal(gguf_open(here->path, &file, NULL), DESCENT_OK);
    assert_int_equal(gguf_bytes(file), bytes);
    assert_memory_equal(gguf_data(file), expected, bytes);
    (void)touch_gguf(file);
    gguf_close(file);
    free(expected);
}

/* What was read stays, whatever becomes of the file. */
static void reads_a_file(void **state)
{
    scratch *here = *state;
    size_t bytes;
    uint8_t *expected = save_sample(here->path, &bytes);
    gguf_file *file = NULL;
    assert_int_equal(gguf_read(here->path, &file, NULL), DESCENT_OK);
    assert_int_equal(truncate(here->path, 0), 0);
    assert_int_equal(gguf_bytes(file), bytes);
    assert_memory_equal(gguf_data(file), expected, bytes);
    (void)touch_gguf(file);
    gguf_close(file);
    free(expected);
    assert_int_equal(truncate(here->path, (off_t)1 << 43), 0);
    refuse_path_by(gguf_read, here->path, DESCENT_LIMIT, "memory of this machine");
}

/* Whether there is something to be read at an address, as the system says that copies a byte from there. */
static bool is_there(const void *at)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    bool there = write(ends[1], at, 1) == 1;
    assert_true(there || errno == EFAULT);
    (void)close(ends[0]);
    (void)close(ends[1]);
    return there;
}

/* Of a tensor given back nothing remains that reading its neighbours could bring to memory again. */
static void gives_back_a_tensor(void **state)
{
    enum { COLUMNS = 1 << 15, ROWS = 3 };
    static float values[ROWS * COLUMNS];
    static const char *const names[] = {"before", "between", "behind"};
    static const opener openers[] = {gguf_open, gguf_read};
    scratch *here = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), most = sizeof values, least = sizeof values - 2 * page;
    gguf_writer *writer = gguf_writer_create();
    for (size_t i = 0; i < ROWS * COLUMNS; i++) values[i] = (float)i;
    for (size_t i = 0; i < 3; i++)
        gguf_writer_tensor(writer, names[i], GGUF_WRITER_F32, 2, (const uint64_t[]){COLUMNS, ROWS}, values);
    gguf_writer_save(writer, here->path);
    gguf_writer_destroy(writer);
    for (size_t o = 0; o < 2; o++) {
        gguf_file *file = NULL;
        assert_int_equal(openers[o](here->path, &file, NULL), DESCENT_OK);
        const gguf_tensor *t = gguf_find_tensor(file, names[1]);
        const unsigned char *data = t->data;
        assert_true(is_there(data + page) && is_there(data + least));
        uint64_t given = gguf_release(file, t);
        assert_true(given >= least && given <= most);
        assert_null(t->data);
        assert_false(is_there(data + page) || is_there(data + least));
        assert_memory_equal(gguf_find_tensor(file, names[0])->data, values, sizeof values);
        assert_memory_equal(gguf_find_tensor(file, names[2])->data, values, sizeof values);
        gguf_close(file);
        assert_false(is_there(data + page));
    }
}

/* Writes the header of `writer` and makes the file `size` bytes long without writing the rest. */
static void save_sparse(gguf_writer *writer, const char *path, off_t size)
{
    gguf_writer_save(writer, path);
    gguf_writer_destroy(writer);
    assert_int_equal(truncate(path, size), 0);
}

static void opens_a_file_larger_than_4_gib(void **state)
{
    scratch *here = *state;
    const uint64_t size = (uint64_t)6 << 30;
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_tensor_raw(writer, "large", 24, 2, (const uint64_t[]){1 << 20, 6 << 10}, "", 0);
    size_t start = gguf_writer_layout_of(writer).data_start;
    save_sparse(writer, here->path, (off_t)(start + size));
    gguf_file *file = NULL;
    assert_int_equal(gguf_open(here->path, &file, NULL), DESCENT_OK);
    const gguf_tensor *tensor = gguf_find_tensor(file, "large");
    assert_int_equal(tensor->bytes, size);
    assert_int_equal(((const uint8_t *)tensor->data)[size - 1], 0);
    gguf_close(file);
    assert_int_equal(truncate(here->path, (off_t)(start + size - 1)), 0);
    refuse_path_by(gguf_open, here->path, DESCENT_BAD_FILE, "tensor 0 'large'");
}

/* A header may claim to fill a huge file: it is not followed past its limit, and no memory is taken for the claim. */
static void bounds_the_header_of_a_huge_file(void **state)
{
    scratch *here = *state;
    const off_t size = (off_t)1 << 36;
    const uint64_t length = (uint64_t)1 << 35, count = (uint64_t)1 << 32;
    const uint32_t type = GGUF_VALUE_STRING;
    uint8_t array[12];
    gguf_writer *writer = gguf_writer_create();
    gguf_writer_raw(writer, "text", GGUF_VALUE_STRING, &length, sizeof length);
    save_sparse(writer, here->path, size);
    refuse_path_by(gguf_open, here->path, DESCENT_UNSUPPORTED, "metadata entry 0 'text'");
    writer = gguf_writer_create();
    memcpy(array, &type, 4);
    memcpy(array + 4, &count, 8);
    gguf_writer_raw(writer, "list", GGUF_VALUE_ARRAY, array, sizeof array);
    save_sparse(writer, here->path, size);
    refuse_path_by(gguf_open, here->path, DESCENT_UNSUPPORTED, "metadata entry 0 'list'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(refuses_what_is_no_file, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(maps_a_file, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(reads_a_file, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(gives_back_a_tensor, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(opens_a_file_larger_than_4_gib, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(bounds_the_header_of_a_huge_file, make_scratch, remove_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
