/* packed.h: quantized matrices as the kernels read them. A tensor of a file is repacked once, when it is loaded, to about the
 * size it had, and multiplied both ways from the same bytes; nothing is widened.
 *
 * Packing cuts W into blocks of 32 x 32, rows and columns beyond W's being zeros, and a block into cells of 8 x 8. A cell is
 * one 64-byte vector: against eight broadcast bytes of x it gives two partial sums for each of 8 rows of W x; turned, against
 * eight bytes of u, the same for 8 columns of W^T u. The order inside is in packed_layout.h. Weights are unsigned with an
 * offset, which is taken out through the sums of the activations.
 *
 * Activations are rounded to signed bytes, 32 at a time, with one float scale, the largest magnitude / 127: along the columns
 * for W x, along the rows for W^T u. A block's sum of products is an exact integer; blocks are added in order, as floats, to
 * zero or, in a product that adds (product.add), to what is in `out`. So a result depends on nothing but the matrix, the vector
 * and the instruction set, and a product that adds goes on where another part ended. An activation that is not finite makes
 * every output it counts in not finite.
 *
 * Where scales are the same over 32 x 32 weights (`even`), u is rounded once for W^T u. Where they differ from row to row, they
 * have to be multiplied into it, for every block of columns anew. So u is first multiplied with the mean of each row's scales,
 * as floats, and rounded to 16 bits, 32 rows at a time, once. For a block of columns each such word is multiplied with what is
 * left of its row's scale, over the largest of the 32, in 16 bits as well, and the products, by their largest, become bytes: a
 * few instructions for 32 numbers. What is lost beyond the rounding to bytes is 2^-16 of (the largest of u times the means)
 * times (the largest of what is left). */
#ifndef DESCENT_PACKED_H
#define DESCENT_PACKED_H

#include "kernels.h"

typedef struct packed packed;

/* Repacks `rows` rows of a GGUF tensor of a quantized type, each of whole blocks that hold `cols` numbers and padding, which
 * must be zeros' worth of nothing: it is not read. `data` is the tensor as the file has it. `both_ways`: W^T u will be asked
 * for, which takes some more memory unless W is even. NULL: no memory. Any thread. */
packed *packed_create(number_type type, const void *data, size_t rows, size_t cols, bool both_ways);
void packed_destroy(packed *p);
size_t packed_bytes(const packed *p); /* of memory */
bool packed_is_even(const packed *p);

/* Row r as floats, exactly what the type says: out[c] = W[r][c], or added. */
void packed_row(const packed *p, size_t r, float *out, bool add);

#endif
