/* gguf_write.c: see gguf_write.h. Metadata and tensor list grow in memory, which a header's size bounds; data goes straight to
 * the file. Called by quantize.c. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* realpath */
#endif
#include "gguf_write.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct bytes {
    unsigned char *data;
    size_t count, room;
} bytes;

struct gguf_output {
    char *path, *partial; /* where it will be, and where it is written */
    bool replace;
    FILE *file;
    bytes metadata, tensors;
    uint64_t n_metadata, n_tensors;
    uint64_t *sizes; /* [n_tensors] of [room_tensors], bytes of data */
    uint64_t room_tensors;
    uint64_t turn, left; /* the tensor whose data comes next, and what it lacks */
    uint32_t alignment;
    bool no_memory;
};

static void append(gguf_output *out, bytes *to, const void *data, size_t count)
{
    if (count > to->room - to->count) {
        size_t room = 2 * (to->count + count) + 256;
        unsigned char *grown = realloc(to->data, room);
        if (!grown) {
            out->no_memory = true;
            return;
        }
        to->data = grown;
        to->room = room;
    }
    memcpy(to->data + to->count, data, count);
    to->count += count;
}

static void append_u32(gguf_output *out, bytes *to, uint32_t value)
{
    append(out, to, &value, sizeof value);
}

static void append_u64(gguf_output *out, bytes *to, uint64_t value)
{
    append(out, to, &value, sizeof value);
}

static void append_text(gguf_output *out, bytes *to, const char *text)
{
    append_u64(out, to, strlen(text));
    append(out, to, text, strlen(text));
}

static descent_code failed(const gguf_output *out, const char *what, descent_status *status)
{
    return descent_fail(status, DESCENT_IO, "cannot %s '%s': %s", what, out->path, strerror(errno));
}

/* ---- Opening and closing ---------------------------------------------------------------------------------------- */

static descent_code check_place(const char *path, bool replace, descent_status *status)
{
    struct stat there;
    if (stat(path, &there) != 0) {
        if (errno != ENOENT) return descent_fail(status, DESCENT_IO, "cannot write '%s': %s", path, strerror(errno));
        if (lstat(path, &there) != 0) return DESCENT_OK;
        return descent_fail(status, DESCENT_IO, "'%s' is a symbolic link to what does not exist", path);
    }
    if (!S_ISREG(there.st_mode))
        return descent_fail(status, DESCENT_IO, "'%s' is no ordinary file, so it is not written over", path);
    if (!replace) return descent_fail(status, DESCENT_IO, "'%s' exists already", path);
    return DESCENT_OK;
}

descent_code gguf_output_create(const char *path, bool replace, gguf_output **created, descent_status *status)
{
    descent_code code = check_place(path, replace, status);
    if (code != DESCENT_OK) return code;
    gguf_output *out = calloc(1, sizeof *out);
    if (out) {
        out->replace = replace;
        out->path = realpath(path, NULL); /* behind a symbolic link it is the link's file that is replaced */
        if (!out->path && errno == ENOENT) out->path = strdup(path);
    }
    size_t length = out && out->path ? strlen(out->path) + 32 : 0;
    if (length) out->partial = malloc(length);
    if (!out || !out->path || !out->partial) {
        gguf_output_discard(out);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory to write a file");
    }
    (void)snprintf(out->partial, length, "%s.%ld.part", out->path, (long)getpid());
    int descriptor = open(out->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    out->file = descriptor < 0 ? NULL : fdopen(descriptor, "wb");
    if (!out->file) {
        code = failed(out, "write", status);
        if (descriptor >= 0) {
            (void)close(descriptor);
            (void)unlink(out->partial);
        }
        gguf_output_discard(out);
        return code;
    }
    *created = out;
    return descent_ok(status);
}

void gguf_output_discard(gguf_output *out)
{
    if (!out) return;
    if (out->file) {
        (void)unlink(out->partial);
        (void)fclose(out->file);
    }
    free(out->metadata.data);
    free(out->tensors.data);
    free(out->sizes);
    free(out->path);
    free(out->partial);
    free(out);
}

/* What has come to `path` since it was looked at stays, unless it may be replaced: a link fails with EEXIST. Where there are no
 * links the name is taken by an empty file first. */
static bool put_in_place(const gguf_output *out)
{
    if (!out->replace) {
        if (link(out->partial, out->path) == 0) return unlink(out->partial) == 0;
        if (errno != EPERM && errno != ENOSYS && errno != EOPNOTSUPP) return false;
        int taken = open(out->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (taken < 0) return false;
        (void)close(taken);
    }
    return rename(out->partial, out->path) == 0;
}

descent_code gguf_output_finish(gguf_output *out, descent_status *status)
{
    descent_code code = DESCENT_OK;
    if (out->turn != out->n_tensors)
        code = descent_fail(status, DESCENT_BAD_ARGUMENT, "'%s': data of %llu tensors of %llu was written", out->path,
                            (unsigned long long)out->turn, (unsigned long long)out->n_tensors);
    if (code == DESCENT_OK && (fflush(out->file) != 0 || fsync(fileno(out->file)) != 0)) code = failed(out, "write", status);
    if (code == DESCENT_OK) {
        FILE *file = out->file;
        out->file = NULL;
        bool closed = fclose(file) == 0;
        if (!closed || !put_in_place(out)) {
            code = failed(out, closed ? "put in place" : "write", status);
            (void)unlink(out->partial);
        } else {
            (void)descent_ok(status);
        }
    }
    gguf_output_discard(out);
    return code;
}

/* ---- Declaring -------------------------------------------------------------------------------------------------- */

void gguf_output_entry(gguf_output *out, gguf_string whole)
{
    append(out, &out->metadata, whole.text, whole.bytes);
    out->n_metadata++;
}

void gguf_output_u32(gguf_output *out, const char *key, uint32_t value)
{
    append_text(out, &out->metadata, key);
    append_u32(out, &out->metadata, GGUF_VALUE_U32);
    append_u32(out, &out->metadata, value);
    out->n_metadata++;
}

void gguf_output_text(gguf_output *out, const char *key, const char *value)
{
    append_text(out, &out->metadata, key);
    append_u32(out, &out->metadata, GGUF_VALUE_STRING);
    append_text(out, &out->metadata, value);
    out->n_metadata++;
}

static bool remember_size(gguf_output *out, uint64_t size)
{
    if (out->n_tensors == out->room_tensors) {
        uint64_t room = 2 * out->room_tensors + 64;
        uint64_t *grown = realloc(out->sizes, room * sizeof *grown);
        if (!grown) return false;
        out->sizes = grown;
        out->room_tensors = room;
    }
    out->sizes[out->n_tensors++] = size;
    return true;
}

void gguf_output_tensor(gguf_output *out, const char *name, const gguf_type_info *type, uint32_t n_dims, const uint64_t *dims)
{
    uint64_t numbers = 1;
    for (uint32_t d = 0; d < n_dims; d++) numbers *= dims[d];
    append_text(out, &out->tensors, name);
    append_u32(out, &out->tensors, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) append_u64(out, &out->tensors, dims[d]);
    append_u32(out, &out->tensors, type->type);
    append_u64(out, &out->tensors, 0); /* the offset, which follows from the alignment: see place_tensors */
    if (!remember_size(out, numbers / type->block * type->block_bytes)) out->no_memory = true;
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

static uint64_t aligned(uint64_t size, uint32_t alignment)
{
    return (size + alignment - 1) / alignment * alignment;
}

/* Fills in where each tensor's data begins. */
static void place_tensors(gguf_output *out)
{
    uint64_t offset = 0;
    unsigned char *at = out->tensors.data;
    for (uint64_t i = 0; i < out->n_tensors; i++) {
        uint64_t name_bytes;
        uint32_t n_dims;
        memcpy(&name_bytes, at, sizeof name_bytes);
        at += sizeof name_bytes + name_bytes;
        memcpy(&n_dims, at, sizeof n_dims);
        at += sizeof n_dims + n_dims * sizeof(uint64_t) + sizeof(uint32_t);
        memcpy(at, &offset, sizeof offset);
        at += sizeof offset;
        offset += aligned(out->sizes[i], out->alignment);
    }
}

static bool put(gguf_output *out, const void *data, size_t count)
{
    return fwrite(data, 1, count, out->file) == count;
}

static bool pad(gguf_output *out, uint64_t size)
{
    for (uint64_t lacks = aligned(size, out->alignment) - size; lacks > 0; lacks--)
        if (!put(out, "", 1)) return false;
    return true;
}

descent_code gguf_output_begin(gguf_output *out, uint32_t alignment, descent_status *status)
{
    const uint32_t version = 3;
    out->alignment = alignment;
    if (out->no_memory) return descent_fail(status, DESCENT_NO_MEMORY, "no memory for the header of '%s'", out->path);
    place_tensors(out);
    uint64_t size = 24 + out->metadata.count + out->tensors.count;
    if (!put(out, "GGUF", 4) || !put(out, &version, sizeof version) || !put(out, &out->n_tensors, sizeof out->n_tensors) ||
        !put(out, &out->n_metadata, sizeof out->n_metadata) || !put(out, out->metadata.data, out->metadata.count) ||
        !put(out, out->tensors.data, out->tensors.count) || !pad(out, size))
        return failed(out, "write", status);
    out->left = out->n_tensors ? out->sizes[0] : 0;
    return descent_ok(status);
}

descent_code gguf_output_data(gguf_output *out, const void *data, size_t count, descent_status *status)
{
    if (out->turn == out->n_tensors || count > out->left)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "'%s': more data than its tensors have", out->path);
    if (!put(out, data, count)) return failed(out, "write", status);
    out->left -= count;
    if (out->left > 0) return descent_ok(status);
    if (!pad(out, out->sizes[out->turn])) return failed(out, "write", status);
    out->turn++;
    out->left = out->turn < out->n_tensors ? out->sizes[out->turn] : 0;
    return descent_ok(status);
}
