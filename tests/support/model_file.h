/* model_file.h: between a test_model and a GGUF file. */
#ifndef TEST_MODEL_FILE_H
#define TEST_MODEL_FILE_H

#include "gguf_writer.h"
#include "test_model.h"

/* Writes the model as docs/format.md says. Rows that no block divides are padded with zeros. */
void write_model(const test_model *model, const char *path);
/* The same with what `add` writes behind the model's own keys: a tokenizer, a chat template. */
void write_model_with(const test_model *model, const char *path, void (*add)(gguf_writer *writer));

/* Reads one of the files above, or of the converter, through engine/gguf.h: hyper-parameters and tensors, padding dropped.
 * Ends the test program with a message where something is missing. For golden models, whose numbers come from elsewhere. */
test_model read_model(const char *path);

/* A path inside a directory made for this test program, removed with all in it when the program ends. Valid until the
 * next eight calls. */
const char *scratch_path(const char *name);

#endif
