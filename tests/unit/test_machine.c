/* test_machine.c: limits of control groups of both versions, read from trees of files that look like a system's. */
#include "descent.h"
#include "machine.h"
#include "model_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[4096]; /* of the system at hand */

static void begin(const char *name)
{
    (void)snprintf(root, sizeof root, "%s", scratch_path(name));
    assert_int_equal(mkdir(root, 0700), 0);
}

static void put(const char *path, const char *text)
{
    char whole[8192];
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = whole + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        assert_true(mkdir(whole, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static const char v2_mounts[] = "22 1 0:20 / /proc rw - proc proc rw\n"
                                "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
static const char v1_mounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 master:3 - cgroup cgroup rw,cpu,cpuacct\n";

static void nothing_says_nothing(void **state)
{
    (void)state;
    begin("empty");
    assert_int_equal(cpus_quota(root), 0);
    put("/proc/self/mountinfo", v2_mounts);
    assert_int_equal(cpus_quota(root), 0);
    put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(cpus_quota(root), 0);
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(cpus_quota(root), 0);
}

static void version_2(void **state)
{
    static const struct {
        const char *text;
        unsigned cpus;
    } cases[] = {{"100000 100000\n", 1}, {"100001 100000\n", 2},
                 {"250000 100000\n", 3}, {"50000 100000\n", 1},
                 {"1000 100000\n", 1},   {"400000 50000", 8},
                 {"max 100000\n", 0},    {"0 100000\n", 0},
                 {"-1 100000\n", 0},     {"100000 0\n", 0},
                 {"100000\n", 0},        {"", 0},
                 {"many 100000\n", 0},   {"9223372036854775807 1\n", 0}};
    (void)state;
    begin("v2");
    put("/proc/self/mountinfo", v2_mounts);
    put("/proc/self/cgroup", "0::/\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("/sys/fs/cgroup/cpu.max", cases[i].text);
        assert_int_equal(cpus_quota(root), cases[i].cpus);
    }
}

/* The least of a group's own quota and of those above it. */
static void groups_above(void **state)
{
    (void)state;
    begin("nested");
    put("/proc/self/mountinfo", v2_mounts);
    put("/proc/self/cgroup", "0::/user.slice/app\n");
    put("/sys/fs/cgroup/user.slice/app/cpu.max", "800000 100000\n");
    assert_int_equal(cpus_quota(root), 8);
    put("/sys/fs/cgroup/user.slice/cpu.max", "300000 100000\n");
    assert_int_equal(cpus_quota(root), 3);
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(cpus_quota(root), 3);
    put("/sys/fs/cgroup/user.slice/app/cpu.max", "150000 100000\n");
    assert_int_equal(cpus_quota(root), 2);
    put("/sys/fs/cgroup/user.slice/application/cpu.max", "50000 100000\n"); /* somebody else's */
    assert_int_equal(cpus_quota(root), 2);
}

static void version_1(void **state)
{
    (void)state;
    begin("v1");
    put("/proc/self/mountinfo", v1_mounts);
    put("/proc/self/cgroup", "5:cpuset:/elsewhere\n4:cpu,cpuacct:/jobs/7\n1:name=systemd:/\n");
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_quota(root), 0);
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/7/cpu.cfs_quota_us", "450000\n");
    assert_int_equal(cpus_quota(root), 5);
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "40000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "20000\n");
    assert_int_equal(cpus_quota(root), 2);
    put("/sys/fs/cgroup/cpuset/elsewhere/cpu.cfs_quota_us", "1000\n"); /* not the cpu group */
    put("/sys/fs/cgroup/cpuset/elsewhere/cpu.cfs_period_us", "1000\n");
    assert_int_equal(cpus_quota(root), 2);
}

/* A container sees its own group at the top of the mount, whatever the host calls it. */
static void containers(void **state)
{
    (void)state;
    begin("container1");
    put("/proc/self/mountinfo", "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
    put("/proc/self/cgroup", "3:cpu:/docker/abc\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_quota(root), 2);
    put("/proc/self/cgroup", "3:cpu:/docker/abc/inner\n");
    assert_int_equal(cpus_quota(root), 2);
    put("/sys/fs/cgroup/cpu/inner/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/inner/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_quota(root), 1);
    put("/proc/self/cgroup", "3:cpu:/not/seen/here\n");
    assert_int_equal(cpus_quota(root), 2);

    begin("container2");
    put("/proc/self/mountinfo", v2_mounts);
    put("/proc/self/cgroup", "0::/../../kubepods/pod9\n"); /* from a namespace beside it */
    put("/sys/fs/cgroup/cpu.max", "700000 100000\n");
    assert_int_equal(cpus_quota(root), 7);
}

/* Both versions are mounted; the cpu controller is one's. */
static void hybrid(void **state)
{
    char mounts[1024];
    (void)state;
    begin("hybrid");
    (void)snprintf(mounts, sizeof mounts, "%s41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", v1_mounts);
    put("/proc/self/mountinfo", mounts);
    put("/proc/self/cgroup", "2:cpu,cpuacct:/a\n0::/b\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "600000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus_quota(root), 6);
    put("/sys/fs/cgroup/unified/b/cpu.max", "200000 100000\n");
    assert_int_equal(cpus_quota(root), 2);
}

static void what_is_not_a_system(void **state)
{
    (void)state;
    begin("damaged");
    put("/proc/self/mountinfo", "\n - \n1 2\n1 2 3 4 5 6 - \n1 2 3 / /sys/fs/cgroup 6 - cgroup2\n"
                                "1 2 3 / /sys/fs/cgroup 6 - cgroup2 none rw\n");
    put("/proc/self/cgroup", "\n0\n0:\n::::\n0::/x\n");
    put("/sys/fs/cgroup/x/cpu.max", "max");
    assert_int_equal(cpus_quota(root), 0);
    put("/sys/fs/cgroup/x/cpu.max", "500000 100000 and more than there is room for, more than there is room for, more\n");
    assert_int_equal(cpus_quota(root), 5);
}

static void memory(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {{"2147483648\n", 2147483648}, {"max\n", 0}, {"", 0}, {"0\n", 0}, {"-5\n", 0}, {"4096", 4096}};
    (void)state;
    begin("memory2");
    put("/proc/self/mountinfo", v2_mounts);
    put("/proc/self/cgroup", "0::/system.slice/one\n");
    assert_int_equal(memory_limit(root), 0);
    put("/sys/fs/cgroup/system.slice/one/cpu.max", "100000 100000\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("/sys/fs/cgroup/system.slice/one/memory.max", cases[i].text);
        assert_int_equal(memory_limit(root), cases[i].bytes);
    }
    put("/sys/fs/cgroup/system.slice/memory.max", "1000\n"); /* the least of those above */
    assert_int_equal(memory_limit(root), 1000);

    begin("memory1");
    put("/proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                                "34 31 0:31 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put("/proc/self/cgroup", "3:cpu:/docker/abc\n2:memory:/docker/abc\n");
    put("/sys/fs/cgroup/cpu/docker/abc/memory.limit_in_bytes", "7\n"); /* not the memory group */
    assert_int_equal(memory_limit(root), 0);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"); /* as version 1 says that there is none */
    assert_int_equal(memory_limit(root), 9223372036854771712u);
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3221225472\n");
    assert_int_equal(memory_limit(root), 3221225472);
    assert_int_equal(cpus_quota(root), 0);
}

/* This system's: at most half of the memory there is. */
static void the_cache_has_half(void **state)
{
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), limit = memory_limit("");
    (void)state;
    assert_int_equal(descent_cache_bytes_by_default(), (limit > 0 && limit < all ? limit : all) / 2);
}

/* This system's: at most what the affinity says, which follows it. */
static void affinity_bounds(void **state)
{
    cpu_set_t all, one;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    unsigned cpus = cpus_available();
    assert_in_range(cpus, 1, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all)) CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cpus_available(), 1);
    assert_int_equal(descent_threads_by_default(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(cpus_available(), cpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_says_nothing),
        cmocka_unit_test(version_2),
        cmocka_unit_test(groups_above),
        cmocka_unit_test(version_1),
        cmocka_unit_test(containers),
        cmocka_unit_test(hybrid),
        cmocka_unit_test(what_is_not_a_system),
        cmocka_unit_test(affinity_bounds),
        cmocka_unit_test(memory),
        cmocka_unit_test(the_cache_has_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
