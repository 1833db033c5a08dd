/* client.c: the smallest program on libdescent: opens the model named and prints its family. */
#include <descent.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    descent_model *model;
    descent_status status;
    if (argc != 2 || descent_model_open(argv[1], &model, &status)) return 1;
    puts(descent_model_describe(model)->family);
    descent_model_close(model);
    return 0;
}
