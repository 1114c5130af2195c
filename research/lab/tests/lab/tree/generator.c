#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    size_t pages = (argc > 1 ? atoi(argv[1]) : 1) * 256, wrong = 0;
    unsigned *memory = malloc(pages * 4096);
    if (!memory)
        return 1;
    for (unsigned round = 1; round <= 2; round++) {
        for (size_t page = 0; page < pages; page++)
            for (size_t word = 0; word < 1024; word++)
                memory[page * 1024 + word] = word % 8 ? page * round : page * 2654435761u + word;
        for (size_t page = 0; page < pages; page++)
            for (size_t word = 0; word < 1024; word++)
                wrong += memory[page * 1024 + word] !=
                    (unsigned)(word % 8 ? page * round : page * 2654435761u + word);
    }
    printf("int made(void) { return %zu; }\n", wrong);
    return wrong ? 2 : 0;
}
