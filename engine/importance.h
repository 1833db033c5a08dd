/* importance.h: what descent_importance holds, for quantize.c. */
#ifndef DESCENT_IMPORTANCE_H
#define DESCENT_IMPORTANCE_H

#include "model.h"

/* Mean squares of what a matrix met: [cols] of the vectors x of W x, [rows] of the vectors u of W^T u, each scaled to a mean of
 * 1 and at least IMPORTANCE_LEAST; all 1 where there was no such product. */
typedef struct matrix_importance {
    float *cols, *rows;
} matrix_importance;

/* NULL where the model it was gathered from has no such matrix, as that of another shape has not. */
const matrix_importance *importance_of(const descent_importance *importance, const descent_model *model, size_t matrix);

#endif
