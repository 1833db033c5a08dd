/* machine.c: CPUs and memory this process may use, from its affinity and from the limits of its control groups. Called by
 * batch.c, quantize.c and cache.c. A limit that cannot be read is none: a wrong guess of CPUs costs speed, not results.
 *
 * /proc/self/mountinfo says where groups are mounted and which one is at the mount's root (a container's own, often), and
 * /proc/self/cgroup which one is this process's. */
#include "machine.h"

#include "descent.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, LINE_ROOM = 4 * PATH_ROOM, MOST_CPUS = 1 << 16 };

/* ---- Affinity -------------------------------------------------------------------------------------------------- */

static unsigned affinity(void)
{
    for (int room = 1024; room <= MOST_CPUS; room *= 2) { /* the kernel refuses a set smaller than its own */
        cpu_set_t *set = CPU_ALLOC((size_t)room);
        if (!set) return 1;
        size_t bytes = CPU_ALLOC_SIZE((size_t)room);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return (unsigned)count;
    }
    return 1;
}

/* ---- Control groups ---------------------------------------------------------------------------------------------------- */

static FILE *open_under(const char *root, const char *path)
{
    char whole[PATH_ROOM];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof whole ? fopen(whole, "re") : NULL;
}

/* Up to two numbers of a small file; "max" is -1. Returns how many there are. */
static int read_numbers(const char *directory, const char *name, int64_t value[2])
{
    char path[PATH_ROOM], text[64];
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    if (!f) return 0;
    size_t length = fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    text[length] = 0;
    int count = 0;
    for (char *at = text, *end; count < 2; at = end) {
        while (*at == ' ') at++;
        if (!strncmp(at, "max", 3)) {
            value[count++] = -1;
            end = at + 3;
            continue;
        }
        long long number = strtoll(at, &end, 10);
        if (end == at) break;
        value[count++] = number;
    }
    return count;
}

/* What groups limit: its controller in version 1, and the limit that a group's directory states, 0 where that states none. */
typedef struct resource {
    const char *name;
    int64_t (*limit)(const char *directory, bool version2);
} resource;

static int64_t cpu_limit(const char *directory, bool version2)
{
    int64_t quota[2] = {0}, period[2] = {0};
    if (version2) {
        if (read_numbers(directory, "cpu.max", quota) == 2) period[0] = quota[1];
    } else if (read_numbers(directory, "cpu.cfs_quota_us", quota) >= 1) {
        (void)read_numbers(directory, "cpu.cfs_period_us", period);
    }
    if (quota[0] <= 0 || period[0] <= 0) return 0;
    int64_t cpus = quota[0] / period[0] + (quota[0] % period[0] != 0);
    return cpus < MOST_CPUS ? cpus : 0;
}

static int64_t bytes_limit(const char *directory, bool version2)
{
    int64_t bytes[2] = {0};
    (void)read_numbers(directory, version2 ? "memory.max" : "memory.limit_in_bytes", bytes);
    return bytes[0] > 0 ? bytes[0] : 0;
}

static const resource cpu_time = {"cpu", cpu_limit}, memory = {"memory", bytes_limit};

/* The process's group as /proc/self/cgroup has it, "ID:CONTROLLERS:PATH": version 2 is 0 and names no controllers. */
static bool own_group(const char *root, const char *controller, bool version2, char path[PATH_ROOM])
{
    FILE *f = open_under(root, "/proc/self/cgroup");
    if (!f) return false;
    char line[LINE_ROOM];
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group) continue;
        *controllers++ = *group++ = 0;
        bool there = false;
        char *rest = controllers;
        for (char *name; !version2 && (name = strsep(&rest, ",")) != NULL;) there = there || !strcmp(name, controller);
        found = version2 ? !strcmp(line, "0") && *controllers == 0 : there;
        if (found) found = snprintf(path, PATH_ROOM, "%s", group) < PATH_ROOM;
    }
    (void)fclose(f);
    return found;
}

/* One line of mountinfo: "ID PARENT DEVICE ROOT POINT OPTIONS... - TYPE SOURCE SUPEROPTIONS". */
typedef struct mount {
    const char *root, *point, *type, *options;
} mount;

static bool read_mount(char *line, mount *m)
{
    char *half = strstr(line, " - ");
    if (!half) return false;
    *half = 0;
    char *words[5], *rest = line;
    for (int i = 0; i < 5; i++)
        if (!(words[i] = strsep(&rest, " "))) return false;
    rest = half + 3;
    rest[strcspn(rest, "\n")] = 0;
    m->root = words[3];
    m->point = words[4];
    m->type = strsep(&rest, " ");
    const char *source = rest ? strsep(&rest, " ") : NULL;
    m->options = rest;
    return source && m->options;
}

static bool has_option(const char *options, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = options; (at = strstr(at, name)) != NULL; at += length)
        if ((at == options || at[-1] == ',') && (at[length] == ',' || at[length] == 0)) return true;
    return false;
}

/* The group's directory and those above it, up to where the mount begins. A group that is not to be seen there (a container's
 * view begins at its own) leaves those that are. */
static void lower_by_mount(int64_t *least, const resource *of, const char *root, const mount *m, const char *group,
                           bool version2)
{
    size_t shown = strcmp(m->root, "/") ? strlen(m->root) : 0;
    if (!strncmp(group, m->root, shown) && (group[shown] == '/' || group[shown] == 0))
        group += shown;
    else
        group = "";
    char directory[PATH_ROOM];
    int n = snprintf(directory, sizeof directory, "%s%s%s", root, m->point, group);
    if (n < 0 || (size_t)n >= sizeof directory) return;
    size_t top = strlen(root) + strlen(m->point);
    for (size_t end = (size_t)n; end >= top && end > 0; end--) {
        if (end > top && directory[end] != '/' && directory[end] != 0) continue;
        directory[end] = 0;
        int64_t limit = of->limit(directory, version2);
        if (limit > 0 && (*least == 0 || limit < *least)) *least = limit;
    }
}

/* 0: there is no limit. */
static int64_t least_limit(const char *root, const resource *of)
{
    int64_t least = 0;
    FILE *f = open_under(root, "/proc/self/mountinfo");
    if (!f) return 0;
    char line[LINE_ROOM], group[PATH_ROOM];
    while (fgets(line, sizeof line, f)) {
        mount m;
        if (!read_mount(line, &m)) continue;
        bool version2 = !strcmp(m.type, "cgroup2");
        if (!version2 && (strcmp(m.type, "cgroup") != 0 || !has_option(m.options, of->name))) continue;
        if (own_group(root, of->name, version2, group)) lower_by_mount(&least, of, root, &m, group, version2);
    }
    (void)fclose(f);
    return least;
}

/* ---- What there is ----------------------------------------------------------------------------------------------- */

unsigned cpus_quota(const char *root)
{
    return (unsigned)least_limit(root, &cpu_time);
}

unsigned cpus_available(void)
{
    unsigned cpus = affinity(), quota = cpus_quota("");
    return quota > 0 && quota < cpus ? quota : cpus;
}

uint32_t descent_threads_by_default(void)
{
    return cpus_available();
}

uint64_t memory_limit(const char *root)
{
    return (uint64_t)least_limit(root, &memory);
}

uint64_t descent_cache_bytes_by_default(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    uint64_t all = pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : (uint64_t)1 << 31, limit = memory_limit("");
    return (limit > 0 && limit < all ? limit : all) / 2;
}
