/* test_gguf_write.c: a file that is written is on the disk before it has its name: fsync is this program's own, which looks at
 * what is there when it is called, and fails where a test wants a full disk. What is written is the business of
 * test_quantize.py. */
#include "gguf_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64], path[96];
static int calls, failure;  /* of fsync; errno that it fails with, or 0 */
static bool named;          /* the file had its name when it was called */
static off_t bytes_on_disk; /* and was so long */

int fsync(int descriptor)
{
    struct stat about;
    calls++;
    named = access(path, F_OK) == 0;
    bytes_on_disk = fstat(descriptor, &about) == 0 ? about.st_size : -1;
    errno = failure;
    return failure ? -1 : 0;
}

static int make_folder(void **state)
{
    (void)state;
    calls = failure = 0;
    (void)snprintf(folder, sizeof folder, "/tmp/descent-write-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    (void)snprintf(path, sizeof path, "%s/out.gguf", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder); /* where nothing else is left */
}

static descent_code write_one(descent_status *status)
{
    static const float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    gguf_output *out;
    assert_int_equal(gguf_output_create(path, false, &out, status), DESCENT_OK);
    gguf_output_text(out, "general.architecture", "none");
    gguf_output_tensor(out, "w", gguf_type_find(GGUF_F32), 1, (const uint64_t[4]){8, 1, 1, 1});
    assert_int_equal(gguf_output_begin(out, 32, status), DESCENT_OK);
    assert_int_equal(gguf_output_data(out, numbers, sizeof numbers, status), DESCENT_OK);
    return gguf_output_finish(out, status);
}

static void a_file_is_on_disk_before_it_has_its_name(void **state)
{
    (void)state;
    descent_status status;
    struct stat about;
    assert_int_equal(write_one(&status), DESCENT_OK);
    assert_int_equal(calls, 1);
    assert_false(named);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(bytes_on_disk, about.st_size);
}

static void what_the_disk_does_not_take_is_no_file(void **state)
{
    (void)state;
    descent_status status;
    failure = ENOSPC;
    assert_int_equal(write_one(&status), DESCENT_IO);
    assert_non_null(strstr(status.message, strerror(ENOSPC)));
    assert_non_null(strstr(status.message, path));
    assert_int_equal(calls, 1);
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_file_is_on_disk_before_it_has_its_name, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_the_disk_does_not_take_is_no_file, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
