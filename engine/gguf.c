/* gguf.c: opens a GGUF version 3 file and checks all of it, so that nothing after this file doubts an offset again.
 *
 * A file is: magic, version, tensor count, metadata count; the metadata (key, type, value); the tensor list (name,
 * dimensions fastest first, type, offset); padding to the alignment; the tensors' data, offsets counted from here.
 *
 * It is read twice. The first reading (measure) allocates nothing and checks lengths, counts, types and names, so the
 * memory taken between the two is sized by what the header really holds: at most a small multiple of its bytes, however
 * large the counts it claims. The second (fill) keeps what it reads, then sorts names to find duplicates and offsets to
 * find overlaps. Called by model.c and by tools that look at files; gguf_values.c and gguf_text.c read the values. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* madvise */
#endif
#include "gguf_internal.h"
#include "status.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FIXED_BYTES = 24,      /* magic, version and the two counts */
    MIN_ENTRY_BYTES = 14,  /* key length, one byte of key, type, one byte of value */
    MIN_TENSOR_BYTES = 33, /* name length, one byte of name, n_dims, one dimension, type, offset */
    MAX_KEY_BYTES = 65535, /* both limits are GGUF's own */
    MAX_TENSOR_NAME_BYTES = 64,
    MAX_ARRAY_DEPTH = 4, /* arrays in arrays */
    DEFAULT_ALIGNMENT = 32,
    MIN_ALIGNMENT = 8,
    MAX_ALIGNMENT = 1 << 20,
    SHOWN_NAME_BYTES = 96 /* of a name, in a message */
};

#define MAX_HEADER_BYTES ((uint64_t)1 << 30)

/* ---- Reading forward, and saying where it went wrong ------------------------------------------------------------ */

/* A place in the header, and the item being read, for messages. */
typedef struct cursor {
    const unsigned char *data;
    uint64_t at, end; /* end: of what may be read as header */
    uint64_t bytes;   /* of the whole file */
    const char *item; /* "metadata entry" or "tensor"; NULL before the first */
    uint64_t index, item_at;
    gguf_string name; /* empty until the item's name was read and found good */
    descent_status *status;
} cursor;

/* How many bytes of a name go into a message: whole characters. */
static int shown_bytes(gguf_string name)
{
    size_t shown = 0;
    while (shown < name.bytes) {
        size_t length = gguf_utf8_length((const unsigned char *)name.text + shown, name.bytes - shown);
        if (shown + length > SHOWN_NAME_BYTES) break;
        shown += length;
    }
    return (int)shown;
}

__attribute__((format(printf, 3, 4))) static descent_code fail(const cursor *from, descent_code code, const char *format, ...)
{
    char what[320];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (!from->item) {
        (void)descent_fail(from->status, code, "not a usable GGUF file: %s", what);
        return code;
    }
    if (!from->name.bytes) {
        (void)descent_fail(from->status, code, "%s %llu at byte %llu: %s", from->item, (unsigned long long)from->index,
                           (unsigned long long)from->item_at, what);
        return code;
    }
    int shown = shown_bytes(from->name);
    const char *more = (size_t)shown < from->name.bytes ? "..." : "";
    (void)descent_fail(from->status, code, "%s %llu '%.*s%s' at byte %llu: %s", from->item, (unsigned long long)from->index,
                       shown, from->name.text, more, (unsigned long long)from->item_at, what);
    return code;
}

static void begin_item(cursor *from, const char *item, uint64_t index)
{
    from->item = item;
    from->index = index;
    from->item_at = from->at;
    from->name = (gguf_string){NULL, 0};
}

/* Steps over `count` units of `unit` bytes and points *to at the first. */
static descent_code take(cursor *from, uint64_t count, uint64_t unit, const char *what, const unsigned char **to)
{
    uint64_t left = from->bytes - from->at;
    if (count > left / unit) {
        (void)fail(from, DESCENT_BAD_FILE,
                   "%s needs %llu x %llu bytes at byte %llu, but the file ends %llu bytes later (cut short?)", what,
                   (unsigned long long)count, (unsigned long long)unit, (unsigned long long)from->at, (unsigned long long)left);
        return DESCENT_BAD_FILE;
    }
    if (count > (from->end - from->at) / unit) {
        (void)fail(from, DESCENT_UNSUPPORTED,
                   "%s (%llu x %llu bytes at byte %llu) ends past the first GiB, where every header must end", what,
                   (unsigned long long)count, (unsigned long long)unit, (unsigned long long)from->at);
        return DESCENT_UNSUPPORTED;
    }
    *to = from->data + from->at;
    from->at += count * unit;
    return DESCENT_OK;
}

static descent_code take_u32(cursor *from, const char *what, uint32_t *value)
{
    const unsigned char *bytes = NULL;
    descent_code code = take(from, 1, 4, what, &bytes);
    if (!code) *value = gguf_read_u32(bytes);
    return code;
}

static descent_code take_u64(cursor *from, const char *what, uint64_t *value)
{
    const unsigned char *bytes = NULL;
    descent_code code = take(from, 1, 8, what, &bytes);
    if (!code) *value = gguf_read_u64(bytes);
    return code;
}

size_t gguf_utf8_length(const unsigned char *text, uint64_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (!bytes) return 0;
    if (text[0] < 0x80) return 1;
    size_t length = text[0] >= 0xf8 ? 0 : text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : text[0] >= 0xc0 ? 2 : 0;
    if (!length || length > bytes) return 0;
    uint32_t point = text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        point = point << 6 | (text[i] & 0x3fu);
    }
    bool surrogate = point >= 0xd800 && point <= 0xdfff;
    return point < least[length] || point > 0x10ffff || surrogate ? 0 : length;
}

bool gguf_is_control(const unsigned char *text, size_t length)
{
    if (length == 1) return text[0] < 0x20 || text[0] == 0x7f;
    return length == 2 && text[0] == 0xc2 && text[1] < 0xa0;
}

/* A key or tensor name: names are printed and compared as C strings, so they hold nothing that would spoil either. */
static descent_code take_name(cursor *from, uint64_t most)
{
    uint64_t bytes;
    const unsigned char *text;
    descent_code code = take_u64(from, "the length of the name", &bytes);
    if (code) return code;
    if (bytes < 1 || bytes > most)
        return fail(from, DESCENT_BAD_FILE, "the name is %llu bytes long, expected 1 to %llu", (unsigned long long)bytes,
                    (unsigned long long)most);
    code = take(from, bytes, 1, "the name", &text);
    if (code) return code;
    for (size_t i = 0; i < bytes;) {
        size_t length = gguf_utf8_length(text + i, bytes - i);
        if (!length) return fail(from, DESCENT_BAD_FILE, "byte %zu of the name (0x%02x) is not UTF-8", i, (unsigned)text[i]);
        if (gguf_is_control(text + i, length))
            return fail(from, DESCENT_BAD_FILE, "byte %zu of the name (0x%02x) is a control character", i, (unsigned)text[i]);
        i += length;
    }
    from->name = (gguf_string){(const char *)text, (size_t)bytes};
    return DESCENT_OK;
}

/* ---- One item --------------------------------------------------------------------------------------------------- */

static descent_code take_elements(cursor *from, uint32_t type, uint64_t count, int depth);

/* An array's element type, count and elements. The first two go to *entry. */
static descent_code take_array(cursor *from, int depth, gguf_entry *entry)
{
    if (depth > MAX_ARRAY_DEPTH)
        return fail(from, DESCENT_UNSUPPORTED, "arrays inside arrays more than %d deep", (int)MAX_ARRAY_DEPTH);
    descent_code code = take_u32(from, "the array's type", &entry->element);
    if (!code) code = take_u64(from, "the array's count", &entry->count);
    if (code) return code;
    entry->data = from->data + from->at;
    return take_elements(from, entry->element, entry->count, depth);
}

/* Steps over `count` values of one type. Memory is not touched before it is known to be in the file, and every element
 * takes bytes, so that a huge count ends at the end of the file. */
static descent_code take_elements(cursor *from, uint32_t type, uint64_t count, int depth)
{
    const unsigned char *bytes;
    descent_code code;
    if (type == GGUF_VALUE_STRING || type == GGUF_VALUE_ARRAY) {
        cursor probe = *from;
        uint64_t least = type == GGUF_VALUE_STRING ? 8 : 12;
        code = take(&probe, count, least, type == GGUF_VALUE_STRING ? "a list of strings" : "a list of arrays", &bytes);
        for (uint64_t i = 0; i < count && !code; i++) {
            gguf_entry inner;
            uint64_t length;
            if (type == GGUF_VALUE_ARRAY) {
                code = take_array(from, depth + 1, &inner);
            } else {
                code = take_u64(from, "the length of a string", &length);
                if (!code) code = take(from, length, 1, "a string", &bytes);
            }
        }
        return code;
    }
    uint32_t unit = gguf_value_bytes(type);
    if (!unit) return fail(from, DESCENT_BAD_FILE, "value type %u, expected 0 to %d", type, (int)GGUF_VALUE_F64);
    code = take(from, count, unit, count == 1 ? "a value" : "an array", &bytes);
    for (uint64_t i = 0; i < count && !code && type == GGUF_VALUE_BOOL; i++)
        if (bytes[i] > 1) code = fail(from, DESCENT_BAD_FILE, "a bool is %u, expected 0 or 1", (unsigned)bytes[i]);
    return code;
}

static descent_code take_entry(cursor *from, uint64_t index, gguf_entry *entry)
{
    begin_item(from, "metadata entry", index);
    descent_code code = take_name(from, MAX_KEY_BYTES);
    if (!code) code = take_u32(from, "the value's type", &entry->type);
    if (code) return code;
    if (entry->type == GGUF_VALUE_ARRAY) return take_array(from, 1, entry);
    entry->element = entry->type;
    entry->count = 1;
    entry->data = from->data + from->at;
    if (entry->type != GGUF_VALUE_STRING) return take_elements(from, entry->type, 1, 1);
    code = take_u64(from, "the length of a string", &entry->count);
    if (!code) code = take(from, entry->count, 1, "a string", &entry->data);
    return code;
}

/* The tensor's size from its dimensions and type. */
static descent_code size_tensor(const cursor *from, gguf_tensor *tensor)
{
    const gguf_type_info *info = gguf_type_find(tensor->type);
    if (!info) return fail(from, DESCENT_BAD_FILE, "tensor type %u is not one GGUF defines", tensor->type);
    tensor->numbers = 1;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        uint64_t dim = tensor->dims[i];
        if (!dim) return fail(from, DESCENT_BAD_FILE, "dimension %u is 0, expected at least 1", i);
        if (dim > INT64_MAX / tensor->numbers)
            return fail(from, DESCENT_BAD_FILE, "the product of its dimensions overflows at dimension %u, %llu", i,
                        (unsigned long long)dim);
        tensor->numbers *= dim;
    }
    if (tensor->dims[0] % info->block)
        return fail(from, DESCENT_BAD_FILE, "rows of %llu numbers are no whole number of %s blocks of %u",
                    (unsigned long long)tensor->dims[0], info->name, info->block);
    uint64_t blocks = tensor->numbers / info->block;
    if (blocks > INT64_MAX / info->block_bytes)
        return fail(from, DESCENT_BAD_FILE, "%llu numbers of type %s overflow a file's size",
                    (unsigned long long)tensor->numbers, info->name);
    tensor->bytes = blocks * info->block_bytes;
    return DESCENT_OK;
}

/* Everything but where the data lies; *offset is what the file says about that. */
static descent_code take_tensor(cursor *from, uint64_t index, gguf_tensor *tensor, uint64_t *offset)
{
    begin_item(from, "tensor", index);
    descent_code code = take_name(from, MAX_TENSOR_NAME_BYTES);
    if (!code) code = take_u32(from, "the number of dimensions", &tensor->n_dims);
    if (code) return code;
    if (tensor->n_dims < 1 || tensor->n_dims > GGUF_MAX_DIMS)
        return fail(from, DESCENT_BAD_FILE, "%u dimensions, expected 1 to %d", tensor->n_dims, GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < GGUF_MAX_DIMS && !code; i++) {
        tensor->dims[i] = 1;
        if (i < tensor->n_dims) code = take_u64(from, "a dimension", &tensor->dims[i]);
    }
    if (!code) code = take_u32(from, "the type", &tensor->type);
    if (!code) code = take_u64(from, "the offset", offset);
    if (!code) code = size_tensor(from, tensor);
    return code;
}

/* ---- The two readings ------------------------------------------------------------------------------------------- */

/* What the first reading learns: how much the second will keep. */
typedef struct measure {
    uint64_t n_entries, n_tensors, name_bytes, strings;
    uint64_t metadata_at, header_end;
} measure;

static descent_code read_fixed(cursor *from, measure *sizes)
{
    const unsigned char *magic;
    uint32_t version = 0;
    descent_code code = take(from, 1, 4, "the magic", &magic);
    if (code) return code;
    if (memcmp(magic, "GGUF", 4) != 0)
        return fail(from, DESCENT_BAD_FILE, "it begins with %02x %02x %02x %02x, expected 47 47 55 46 (\"GGUF\")", magic[0],
                    magic[1], magic[2], magic[3]);
    code = take_u32(from, "the version", &version);
    if (code) return code;
    if (version && !(version & 0xffff))
        return fail(from, DESCENT_UNSUPPORTED, "it is big-endian (version field 0x%08x); only little-endian files are read",
                    version);
    if (version != 3) return fail(from, DESCENT_UNSUPPORTED, "its GGUF version is %u; only version 3 is read", version);
    code = take_u64(from, "the tensor count", &sizes->n_tensors);
    if (!code) code = take_u64(from, "the metadata count", &sizes->n_entries);
    if (code) return code;
    uint64_t left = from->end - from->at;
    if (sizes->n_entries > left / MIN_ENTRY_BYTES)
        return fail(from, DESCENT_BAD_FILE, "it claims %llu metadata entries, but %llu bytes hold at most %llu",
                    (unsigned long long)sizes->n_entries, (unsigned long long)left,
                    (unsigned long long)(left / MIN_ENTRY_BYTES));
    if (sizes->n_tensors > left / MIN_TENSOR_BYTES)
        return fail(from, DESCENT_BAD_FILE, "it claims %llu tensors, but %llu bytes hold at most %llu",
                    (unsigned long long)sizes->n_tensors, (unsigned long long)left,
                    (unsigned long long)(left / MIN_TENSOR_BYTES));
    sizes->metadata_at = from->at;
    return DESCENT_OK;
}

static descent_code measure_header(cursor *from, measure *sizes)
{
    descent_code code = read_fixed(from, sizes);
    for (uint64_t i = 0; i < sizes->n_entries && !code; i++) {
        gguf_entry entry = {0};
        code = take_entry(from, i, &entry);
        sizes->name_bytes += from->name.bytes + 1;
        if (entry.type == GGUF_VALUE_ARRAY && entry.element == GGUF_VALUE_STRING) sizes->strings += entry.count;
    }
    for (uint64_t i = 0; i < sizes->n_tensors && !code; i++) {
        gguf_tensor tensor;
        uint64_t offset;
        code = take_tensor(from, i, &tensor, &offset);
        sizes->name_bytes += from->name.bytes + 1;
    }
    sizes->header_end = from->at;
    return code;
}

static bool allocate(gguf_file *file, const measure *sizes)
{
    file->n_entries = (size_t)sizes->n_entries;
    file->n_tensors = (size_t)sizes->n_tensors;
    file->entries = descent_alloc(file->n_entries, sizeof *file->entries);
    file->tensors = descent_alloc(file->n_tensors, sizeof *file->tensors);
    file->entries_by_key = descent_alloc(file->n_entries, sizeof(void *));
    file->tensors_by_name = descent_alloc(file->n_tensors, sizeof(void *));
    file->names = descent_alloc((size_t)sizes->name_bytes, 1);
    file->ends = descent_alloc((size_t)sizes->strings, sizeof *file->ends);
    return file->entries && file->tensors && file->entries_by_key && file->tensors_by_name && file->names && file->ends;
}

/* Copies the current item's name to *arena, which is zeroed, and steps *arena past it and its NUL. */
static const char *keep_name(const cursor *from, char **arena)
{
    char *name = *arena;
    memcpy(name, from->name.text, from->name.bytes);
    *arena += from->name.bytes + 1;
    return name;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp((*(const gguf_entry *const *)a)->key, (*(const gguf_entry *const *)b)->key);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const gguf_tensor *const *)a)->name, (*(const gguf_tensor *const *)b)->name);
}

static int compare_places(const void *a, const void *b)
{
    const unsigned char *first = (*(const gguf_tensor *const *)a)->data, *second = (*(const gguf_tensor *const *)b)->data;
    return (first > second) - (first < second);
}

static descent_code fill_metadata(gguf_file *file, cursor *from, char **arena)
{
    uint64_t *ends = file->ends;
    for (size_t i = 0; i < file->n_entries; i++) {
        gguf_entry *entry = &file->entries[i];
        descent_code code = take_entry(from, i, entry);
        if (code) return code;
        entry->key = keep_name(from, arena);
        entry->whole = from->data + from->item_at;
        entry->whole_bytes = from->at - from->item_at;
        file->entries_by_key[i] = entry;
        if (entry->type != GGUF_VALUE_ARRAY || entry->element != GGUF_VALUE_STRING) continue;
        entry->ends = ends;
        uint64_t end = 0;
        for (uint64_t j = 0; j < entry->count; j++) {
            end += 8 + gguf_read_u64(entry->data + end);
            *ends++ = end;
        }
    }
    qsort(file->entries_by_key, file->n_entries, sizeof(void *), compare_keys);
    for (size_t i = 1; i < file->n_entries; i++) {
        const char *key = file->entries_by_key[i]->key;
        if (strcmp(file->entries_by_key[i - 1]->key, key) == 0)
            return descent_fail(from->status, DESCENT_BAD_FILE, "metadata key '%.*s' stands in the file twice",
                                shown_bytes((gguf_string){key, strlen(key)}), key);
    }
    return DESCENT_OK;
}

uint32_t gguf_alignment(const gguf_file *file)
{
    uint32_t value = DEFAULT_ALIGNMENT;
    (void)gguf_get_u32(file, "general.alignment", MIN_ALIGNMENT, MAX_ALIGNMENT, &value, NULL); /* checked: see below */
    return value;
}

static descent_code read_alignment(const gguf_file *file, uint64_t *alignment, descent_status *status)
{
    uint32_t value = DEFAULT_ALIGNMENT;
    if (gguf_has(file, "general.alignment")) {
        descent_code code = gguf_get_u32(file, "general.alignment", MIN_ALIGNMENT, MAX_ALIGNMENT, &value, status);
        if (code) return code;
        if (value & (value - 1))
            return descent_fail(status, DESCENT_BAD_FILE, "key general.alignment: %u, expected a power of two", value);
    }
    *alignment = value;
    return DESCENT_OK;
}

/* Puts the tensor where its offset says, if it fits there. */
static descent_code place_tensor(const gguf_file *file, const cursor *from, uint64_t start, uint64_t alignment, uint64_t offset,
                                 gguf_tensor *tensor)
{
    if (offset % alignment)
        return fail(from, DESCENT_BAD_FILE, "offset %llu is no multiple of the alignment, %llu", (unsigned long long)offset,
                    (unsigned long long)alignment);
    uint64_t room = file->bytes > start ? file->bytes - start : 0;
    if (offset > room || tensor->bytes > room - offset)
        return fail(from, DESCENT_BAD_FILE,
                    "%llu bytes of data at offset %llu from byte %llu end past the end of the file, %llu bytes (cut short?)",
                    (unsigned long long)tensor->bytes, (unsigned long long)offset, (unsigned long long)start,
                    (unsigned long long)file->bytes);
    tensor->data = file->data + start + offset;
    return DESCENT_OK;
}

static descent_code fill_tensors(gguf_file *file, cursor *from, uint64_t header_end, char **arena)
{
    uint64_t alignment = DEFAULT_ALIGNMENT;
    descent_code code = read_alignment(file, &alignment, from->status);
    if (code) return code;
    uint64_t start = (header_end + alignment - 1) / alignment * alignment;
    for (size_t i = 0; i < file->n_tensors; i++) {
        uint64_t offset;
        code = take_tensor(from, i, &file->tensors[i], &offset);
        if (!code) code = place_tensor(file, from, start, alignment, offset, &file->tensors[i]);
        if (code) return code;
        file->tensors[i].name = keep_name(from, arena);
        file->tensors_by_name[i] = &file->tensors[i];
    }
    qsort(file->tensors_by_name, file->n_tensors, sizeof(void *), compare_places);
    for (size_t i = 1; i < file->n_tensors; i++) {
        const gguf_tensor *before = file->tensors_by_name[i - 1], *after = file->tensors_by_name[i];
        if ((const unsigned char *)before->data + before->bytes > (const unsigned char *)after->data)
            return descent_fail(from->status, DESCENT_BAD_FILE, "tensors '%s' and '%s' overlap", before->name, after->name);
    }
    qsort(file->tensors_by_name, file->n_tensors, sizeof(void *), compare_names);
    for (size_t i = 1; i < file->n_tensors; i++)
        if (strcmp(file->tensors_by_name[i - 1]->name, file->tensors_by_name[i]->name) == 0)
            return descent_fail(from->status, DESCENT_BAD_FILE, "tensor '%s' stands in the file twice",
                                file->tensors_by_name[i]->name);
    return DESCENT_OK;
}

static descent_code read_file(gguf_file *file, descent_status *status)
{
    cursor from = {.data = file->data, .bytes = file->bytes, .status = status};
    from.end = file->bytes < MAX_HEADER_BYTES ? file->bytes : MAX_HEADER_BYTES;
    measure sizes = {0};
    descent_code code = measure_header(&from, &sizes);
    if (code) return code;
    if (!allocate(file, &sizes))
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory for the file's list of keys and tensors");
    from.at = sizes.metadata_at;
    char *arena = file->names;
    code = fill_metadata(file, &from, &arena);
    if (!code) code = fill_tensors(file, &from, sizes.header_end, &arena);
    return code;
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

static descent_code open_bytes(const unsigned char *data, uint64_t bytes, void *mapping, gguf_file **file,
                               descent_status *status)
{
    gguf_file *opened = descent_alloc(1, sizeof *opened);
    if (!opened) {
        if (mapping) (void)munmap(mapping, (size_t)bytes);
        return descent_fail(status, DESCENT_NO_MEMORY, "no memory to open a file");
    }
    opened->data = data;
    opened->bytes = bytes;
    opened->mapping = mapping;
    descent_code code = read_file(opened, status);
    if (code) {
        gguf_close(opened);
        return code;
    }
    *file = opened;
    return descent_ok(status);
}

descent_code gguf_open_memory(const void *data, size_t bytes, gguf_file **file, descent_status *status)
{
    if ((uintptr_t)data % MIN_ALIGNMENT)
        return descent_fail(status, DESCENT_BAD_ARGUMENT, "a GGUF file in memory must be aligned to %d bytes",
                            (int)MIN_ALIGNMENT);
    return open_bytes(data, bytes, NULL, file, status);
}

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

/* A regular file that may be one of ours, opened; *about is what the system says of it. */
static descent_code open_regular(const char *path, int *opened, struct stat *about, descent_status *status)
{
    /* Non-blocking, or opening a pipe would wait for a writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) return descent_fail(status, DESCENT_IO, "cannot open '%s': %s", path, strerror(errno));
    descent_code code = DESCENT_OK;
    if (fstat(descriptor, about) != 0)
        code = descent_fail(status, DESCENT_IO, "cannot look at '%s': %s", path, strerror(errno));
    else if (!S_ISREG(about->st_mode))
        code = descent_fail(status, DESCENT_IO, "'%s' is %s, expected a GGUF file", path, kind_of(about->st_mode));
    else if (about->st_size < FIXED_BYTES)
        code = descent_fail(status, DESCENT_BAD_FILE, "not a usable GGUF file: it has %lld bytes, expected at least %d",
                            (long long)about->st_size, (int)FIXED_BYTES);
    if (code)
        (void)close(descriptor);
    else
        *opened = descriptor;
    return code;
}

descent_code gguf_open(const char *path, gguf_file **file, descent_status *status)
{
    int descriptor;
    struct stat about;
    descent_code code = open_regular(path, &descriptor, &about, status);
    if (code) return code;
    void *mapping = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    int reason = errno;
    (void)close(descriptor);
    if (mapping == MAP_FAILED) return descent_fail(status, DESCENT_IO, "cannot map '%s': %s", path, strerror(reason));
    return open_bytes(mapping, (uint64_t)about.st_size, mapping, file, status);
}

/* All of `bytes` bytes: a file that became shorter since its size was asked for ends early. */
static descent_code read_all(const char *path, int descriptor, unsigned char *to, uint64_t bytes, descent_status *status)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = read(descriptor, to + done, (size_t)(bytes - done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return descent_fail(status, DESCENT_IO, "cannot read '%s': %s", path, strerror(errno));
        if (got == 0)
            return descent_fail(status, DESCENT_IO, "'%s' became shorter while it was read: %llu bytes of %llu", path,
                                (unsigned long long)done, (unsigned long long)bytes);
        done += (uint64_t)got;
    }
    return DESCENT_OK;
}

descent_code gguf_read(const char *path, gguf_file **file, descent_status *status)
{
    int descriptor;
    struct stat about;
    descent_code code = open_regular(path, &descriptor, &about, status);
    if (code) return code;
    size_t bytes = (size_t)about.st_size;
    uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    void *memory = bytes > machine ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        (void)close(descriptor);
        return descent_fail(status, DESCENT_LIMIT,
                            "'%s' has %zu bytes, which the memory of this machine, %llu, has no room for", path, bytes,
                            (unsigned long long)machine);
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* megabytes that every token walks through */
#endif
    code = read_all(path, descriptor, memory, bytes, status);
    (void)close(descriptor);
    if (!code) return open_bytes(memory, bytes, memory, file, status);
    (void)munmap(memory, bytes);
    return code;
}

void gguf_close(gguf_file *file)
{
    if (!file) return;
    if (file->mapping) (void)munmap(file->mapping, (size_t)file->bytes);
    free(file->entries);
    free(file->tensors);
    free(file->entries_by_key);
    free(file->tensors_by_name);
    free(file->names);
    free(file->ends);
    free(file);
}

uint64_t gguf_release(gguf_file *file, const gguf_tensor *tensor)
{
    gguf_tensor *released = &file->tensors[tensor - file->tensors];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)released->data, last = first + released->bytes;
    released->data = NULL;
    first = (first + page - 1) / page * page;
    last = last / page * page;
    if (!file->mapping || first >= last) return 0;
    void *memory = (unsigned char *)file->mapping + (first - (uintptr_t)file->mapping);
    /* Pages of the file that are only let go come back whenever a neighbour is read: so others that are nothing take their
     * place, or where there may be no more mappings, they are let go. Memory that the file was read into is freed by both
     * (MADV_DONTNEED is more than POSIX's advice of that name). */
    if (mmap(memory, last - first, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED)
        return last - first;
    return madvise(memory, last - first, MADV_DONTNEED) == 0 ? last - first : 0;
}

/* ---- What is there ---------------------------------------------------------------------------------------------- */

const void *gguf_data(const gguf_file *file)
{
    return file->data;
}

uint64_t gguf_bytes(const gguf_file *file)
{
    return file->bytes;
}

size_t gguf_tensor_count(const gguf_file *file)
{
    return file->n_tensors;
}

const gguf_tensor *gguf_tensor_at(const gguf_file *file, size_t i)
{
    return i < file->n_tensors ? &file->tensors[i] : NULL;
}

const gguf_tensor *gguf_find_tensor(const gguf_file *file, const char *name)
{
    gguf_tensor wanted = {.name = name};
    const gguf_tensor *key = &wanted;
    const gguf_tensor **found = bsearch(&key, file->tensors_by_name, file->n_tensors, sizeof(void *), compare_names);
    return found ? *found : NULL;
}

const gguf_entry *gguf_find_entry(const gguf_file *file, const char *key)
{
    gguf_entry wanted = {.key = key};
    const gguf_entry *entry = &wanted;
    const gguf_entry **found = bsearch(&entry, file->entries_by_key, file->n_entries, sizeof(void *), compare_keys);
    return found ? *found : NULL;
}
