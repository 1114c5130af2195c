/* A disk of this process that other programs use, over NBD.
 *
 * The library needs the feature `serve`; that of `cargo xtask dist --library` has it.
 *
 * cc serve.c $(pkg-config --cflags --libs rampack) && ./a.out /tmp/disk.sock
 * nbdinfo 'nbd+unix:///?socket=/tmp/disk.sock'
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rampack.h>

static void check(int code, const char *what)
{
    if (code < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, rampack_last_error(), strerror(-code));
        exit(1);
    }
}

int main(int count, char **words)
{
    struct rampack *memory = NULL;
    struct rampack_disk *disk = NULL;
    struct rampack_server *server = NULL;
    char text[16] = "";

    if (count < 2) {
        fprintf(stderr, "usage: %s SOCKET\n", words[0]);
        return 2;
    }
    check(rampack_new(NULL, &memory), "memory");
    check(rampack_disk_new(memory, 16 << 20, NULL, &disk), "a disk");
    check(rampack_disk_write(disk, 0, "of the process", 14), "write");
    check(rampack_disk_serve_nbd(disk, NULL, words[1], &server), "serve");
    printf("serving at %s until a line is typed\n", words[1]);
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin))
        ;
    check(rampack_disk_read(disk, 4096, text, 15), "read");
    printf("%zu clients; a client wrote \"%s\"\n", rampack_server_clients(server), text);
    rampack_server_free(server);
    rampack_disk_free(disk);
    rampack_free(memory);
    return 0;
}
