/* test_rapl.c: joules from a directory made as the kernel makes it: what is counted, what is not, a counter that wraps, one
 * that vanishes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rapl.h"

static char root[128];

static void write_file(const char *domain, const char *file, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, domain);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, domain, file);
    FILE *to = fopen(path, "w");
    assert_non_null(to);
    fputs(text, to);
    fclose(to);
}

static void domain(const char *name, const char *is, const char *microjoules, const char *range)
{
    write_file(name, "name", is);
    write_file(name, "energy_uj", microjoules);
    write_file(name, "max_energy_range_uj", range);
}

static void joules_are(rapl *meter, double wanted)
{
    assert_true(fabs(rapl_joules(meter) - wanted) < 1e-9);
}

static int make(void **state)
{
    (void)state;
    const char *parent = getenv("TMPDIR");
    snprintf(root, sizeof root, "%.100s/test_rapl.XXXXXX", parent && *parent ? parent : P_tmpdir);
    return mkdtemp(root) ? 0 : -1;
}

static int drop(void **state)
{
    char command[160];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command);
}

static void packages_and_their_memory_are_counted(void **state)
{
    rapl meter;
    (void)state;
    domain("intel-rapl:0", "package-0\n", "1000000\n", "262143328850\n");
    domain("intel-rapl:0:0", "core\n", "500000\n", "262143328850\n");
    domain("intel-rapl:0:1", "dram\n", "7\n", "65712999613\n");
    domain("intel-rapl:1", "package-1\n", "0\n", "262143328850\n");
    domain("intel-rapl:2", "psys\n", "3\n", "262143328850\n");
    domain("dtpm", "package-9\n", "3\n", "262143328850\n");
    assert_true(rapl_open(&meter, root));
    assert_int_equal(meter.count, 3);
    joules_are(&meter, 0);
    write_file("intel-rapl:0", "energy_uj", "3500000\n");
    write_file("intel-rapl:0:0", "energy_uj", "9000000\n");
    write_file("intel-rapl:0:1", "energy_uj", "250007\n");
    write_file("intel-rapl:2", "energy_uj", "90000000\n");
    joules_are(&meter, 2.75);
    write_file("intel-rapl:1", "energy_uj", "1000000\n");
    joules_are(&meter, 3.75);
    rapl_close(&meter);
}

static void a_counter_may_wrap(void **state)
{
    rapl meter;
    (void)state;
    domain("intel-rapl:0", "package-0\n", "9000000\n", "10000000\n");
    assert_true(rapl_open(&meter, root));
    write_file("intel-rapl:0", "energy_uj", "500000\n");
    joules_are(&meter, 1.5);
    write_file("intel-rapl:0", "energy_uj", "400000\n");
    joules_are(&meter, 11.4);
    rapl_close(&meter);
}

static void without_counters_there_are_no_joules(void **state)
{
    rapl meter;
    (void)state;
    assert_false(rapl_open(&meter, "no/such/directory"));
    assert_true(isnan(rapl_joules(&meter)));
    rapl_close(&meter);
    domain("intel-rapl:0", "package-0\n", "many\n", "10000000\n");
    domain("intel-rapl:1", "package-1\n", "", "10000000\n");
    write_file("intel-rapl:2", "name", "package-2\n");
    assert_false(rapl_open(&meter, root));
    assert_true(isnan(rapl_joules(&meter)));
    rapl_close(&meter);
}

static void a_counter_that_cannot_be_read_any_more_ends_it(void **state)
{
    rapl meter;
    (void)state;
    domain("intel-rapl:0", "package-0\n", "9\n", "10000000\n");
    assert_true(rapl_open(&meter, root));
    write_file("intel-rapl:0", "energy_uj", "");
    assert_true(isnan(rapl_joules(&meter)));
    write_file("intel-rapl:0", "energy_uj", "10\n");
    assert_true(isnan(rapl_joules(&meter)));
    rapl_close(&meter);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(packages_and_their_memory_are_counted, make, drop),
        cmocka_unit_test_setup_teardown(a_counter_may_wrap, make, drop),
        cmocka_unit_test_setup_teardown(without_counters_there_are_no_joules, make, drop),
        cmocka_unit_test_setup_teardown(a_counter_that_cannot_be_read_any_more_ends_it, make, drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
