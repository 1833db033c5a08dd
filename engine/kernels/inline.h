/* inline.h: what has to become part of its caller, where sizes and types are constants. */
#ifndef DESCENT_INLINE_H
#define DESCENT_INLINE_H

#define INLINE static inline __attribute__((always_inline))

#endif
