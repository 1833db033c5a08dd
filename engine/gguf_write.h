/* gguf_write.h: writes a GGUF version 3 file from front to back. Everything is declared first, metadata and tensors in the
 * order they are to have; then the tensors' data is handed over in that order, in pieces of any size, so that a file larger
 * than memory can be written. The file is written beside its place under another name and appears, whole, when it is finished.
 *
 *     gguf_output_create, gguf_output_entry..., gguf_output_tensor..., gguf_output_begin, gguf_output_data...,
 * gguf_output_finish
 *
 * One thread at a time. Memory that runs out while declaring is reported by gguf_output_begin.
 */
#ifndef DESCENT_GGUF_WRITE_H
#define DESCENT_GGUF_WRITE_H

#include "gguf.h"

typedef struct gguf_output gguf_output;

/* DESCENT_IO where the system refuses, where `path` is something else than a file, or where it exists and may not be
 * replaced. A symbolic link stands for the file it leads to. */
descent_code gguf_output_create(const char *path, bool replace, gguf_output **out, descent_status *status);

/* An entry as gguf_metadata_bytes gives it. */
void gguf_output_entry(gguf_output *out, gguf_string whole);
void gguf_output_u32(gguf_output *out, const char *key, uint32_t value);
void gguf_output_text(gguf_output *out, const char *key, const char *value);

/* dims [n_dims], 1..GGUF_MAX_DIMS, dims[0] a whole number of the type's blocks; their product below 2^63. */
void gguf_output_tensor(gguf_output *out, const char *name, const gguf_type_info *type, uint32_t n_dims, const uint64_t *dims);

/* Writes what was declared. `alignment` is that of the metadata. */
descent_code gguf_output_begin(gguf_output *out, uint32_t alignment, descent_status *status);

/* The next bytes of the tensor whose turn it is, at most as many as it still lacks; padding behind its last is added. */
descent_code gguf_output_data(gguf_output *out, const void *data, size_t bytes, descent_status *status);

/* Puts the file in its place, all tensors being whole, once the disk has it. DESCENT_IO where another has come there meanwhile
 * and may not be replaced. `out` is gone in any case, and on failure so is what was written. */
descent_code gguf_output_finish(gguf_output *out, descent_status *status);

/* Gives up: nothing is left of the file. NULL is allowed. */
void gguf_output_discard(gguf_output *out);

#endif
