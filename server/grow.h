/* grow.h: arrays that grow as things are added to them. Any thread; the array is its caller's. */
#ifndef DESCENT_SERVER_GROW_H
#define DESCENT_SERVER_GROW_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for `more` elements of `size` bytes behind the `count` there are. `array` is the address of the pointer to them
 * (NULL while *room is 0), of whatever type; *room counts elements and at least doubles. False without memory: nothing has
 * changed then. */
bool grow(void *array, size_t count, size_t more, size_t *room, size_t size);

#endif
