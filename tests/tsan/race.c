/* race.c: a race between OpenMP threads, on purpose. The tsan build must report it, or its silence elsewhere means nothing. */
#include <stdio.h>

int main(void)
{
    double sum = 0;
#pragma omp parallel for num_threads(4) shared(sum)
    for (int i = 0; i < 100000; i++) sum += i;
    printf("%g\n", sum);
    return 0;
}
