/* rapl.c: see rapl.h. A domain is a directory intel-rapl:N, or intel-rapl:N:M inside the domain N, on AMD's processors too; its
 * file `name` says what it is. Cores and graphics are parts of their package, and psys holds packages: counting those as well
 * would count twice. */
#include "rapl.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_number(int file, uint64_t *number)
{
    char text[32], *end;
    ssize_t got = pread(file, text, sizeof text - 1, 0);
    if (got <= 0) return false;
    text[got] = '\0';
    *number = strtoull(text, &end, 10);
    return end != text && (*end == '\n' || *end == '\0');
}

/* A file of a domain, or -1. */
static int open_of(const char *root, const char *domain, const char *file)
{
    char path[512];
    int length = snprintf(path, sizeof path, "%s/%s/%s", root, domain, file);
    return length > 0 && (size_t)length < sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static bool is_counted(const char *root, const char *domain)
{
    char name[64];
    int file = open_of(root, domain, "name");
    ssize_t got = file < 0 ? -1 : read(file, name, sizeof name - 1);
    if (file >= 0) close(file);
    name[got > 0 ? got : 0] = '\0';
    return !strncmp(name, "package", 7) || !strncmp(name, "dram", 4);
}

static void add_domain(rapl *meter, const char *root, const char *domain)
{
    uint64_t range = 0, first = 0;
    int limit = open_of(root, domain, "max_energy_range_uj"), file = open_of(root, domain, "energy_uj");
    bool readable = limit >= 0 && file >= 0 && read_number(limit, &range) && read_number(file, &first);
    if (limit >= 0) close(limit);
    if (readable) {
        meter->domains[meter->count].file = file;
        meter->domains[meter->count].last = first;
        meter->domains[meter->count++].range = range;
    } else if (file >= 0) {
        close(file);
    }
}

bool rapl_open(rapl *meter, const char *root)
{
    if (!root) root = "/sys/class/powercap";
    *meter = (rapl){.count = 0};
    DIR *directory = opendir(root);
    if (!directory) return false;
    for (struct dirent *entry; meter->count < RAPL_MOST_DOMAINS && (entry = readdir(directory));)
        if (!strncmp(entry->d_name, "intel-rapl:", 11) && is_counted(root, entry->d_name))
            add_domain(meter, root, entry->d_name);
    closedir(directory);
    return meter->count > 0;
}

double rapl_joules(rapl *meter)
{
    for (size_t i = 0; i < meter->count; i++) {
        uint64_t now, last = meter->domains[i].last;
        if (!read_number(meter->domains[i].file, &now)) {
            meter->joules = NAN;
            continue;
        }
        uint64_t took = now >= last ? now - last : meter->domains[i].range - last + now;
        meter->joules += 1e-6 * (double)took;
        meter->domains[i].last = now;
    }
    return meter->count ? meter->joules : NAN;
}

void rapl_close(rapl *meter)
{
    for (size_t i = 0; i < meter->count; i++) close(meter->domains[i].file);
    *meter = (rapl){.count = 0};
}
