/* no_race.c: threads that OpenMP keeps in order by every means the engine uses. The tsan build must not object. */
#include <stdio.h>

enum { COUNT = 1000, REPEATS = 50 };

int main(void)
{
    static double values[COUNT];
    double sum = 0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
#pragma omp parallel num_threads(4)
        {
#pragma omp for
            for (int i = 0; i < COUNT; i++) values[i] += i;
#pragma omp for reduction(+ : sum)
            for (int i = 0; i < COUNT; i++) sum += values[COUNT - 1 - i];
#pragma omp critical
            sum += 1;
#pragma omp barrier
#pragma omp single
            values[0] = sum;
        }
        values[1] = values[0];
    }
    printf("%g\n", sum);
    return 0;
}
