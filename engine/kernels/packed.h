/* packed.h: quantized matrices as the kernels read them. A tensor of a file is repacked once, when it is loaded, to about the
 * size it had, and multiplied both ways from the same bytes; nothing is widened.
 *
 * Packing cuts W into tiles of 16 rows x 32 columns, rows and columns beyond W's being zeros. Inside a tile the order is
 * [8 groups of 4 columns][16 rows][4 columns], so that a group is one 64-byte vector: against four broadcast bytes of x it
 * gives 16 rows of W x; with its bytes turned, against four bytes of u for each quarter of its rows, it gives 4 columns of W^T
 * u. Weights are unsigned with an offset, which is taken out through the sums of the activations.
 *
 * Activations are rounded to signed bytes, 32 at a time, with one float scale: along the columns for W x, along the rows for
 * W^T u. A block's sum of products is an exact integer; blocks are added in order, as floats. So a result depends on nothing
 * but the matrix, the vector and the instruction set, and a product that adds (product.add) goes on where another part ended.
 * Where scales differ from row to row, they are multiplied into u before it is rounded, for each block of columns. Where they
 * are the same over 32 x 32 weights (`even`), u is rounded once.
 */
#ifndef DESCENT_PACKED_H
#define DESCENT_PACKED_H

#include "kernels.h"

typedef struct packed packed;

/* Repacks `rows` rows of a GGUF tensor of a quantized type, each of whole blocks that hold `cols` numbers and padding, which
 * must be zeros' worth of nothing: it is not read. `data` is the tensor as the file has it. NULL: no memory. Any thread. */
packed *packed_create(number_type type, const void *data, size_t rows, size_t cols);
void packed_destroy(packed *p);
size_t packed_bytes(const packed *p); /* of memory */
bool packed_is_even(const packed *p);

/* Row r as floats, exactly what the type says: out[c] = W[r][c], or added. */
void packed_row(const packed *p, size_t r, float *out, bool add);

#endif
