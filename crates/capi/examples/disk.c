/* A disk in memory: bytes by their offset, compressed.
 *
 * cc disk.c $(pkg-config --cflags --libs rampack) && ./a.out
 */
#include <inttypes.h>
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

int main(void)
{
    struct rampack *memory = NULL;
    struct rampack_disk *disk = NULL;
    struct rampack_disk_stats stats = {0};
    unsigned char page[RAMPACK_PAGE_SIZE], back[RAMPACK_PAGE_SIZE];
    uint64_t freed;
    int n;

    check(rampack_new(NULL, &memory), "memory");
    check(rampack_disk_new(memory, 1 << 20, NULL, &disk), "a disk");
    for (n = 0; n < 256; n++) {
        memset(page, 0, sizeof page);
        snprintf((char *)page, sizeof page, "page %d", n);
        check(rampack_disk_write(disk, (uint64_t)n * sizeof page, page, sizeof page), "write");
    }
    check(rampack_disk_read(disk, 255 * sizeof page, back, sizeof back), "read");
    printf("the last page: %s\n", (const char *)back);
    if (rampack_disk_read(disk, rampack_disk_size(disk), back, 1) < 0)
        printf("behind it: %s\n", rampack_last_error());
    check(rampack_disk_discard(disk, 0, 128 * sizeof page), "discard");
    check(rampack_disk_compact(disk, &freed), "compact");
    check(rampack_disk_set_limit(disk, 1 << 20), "limit");
    stats.struct_size = sizeof stats;
    check(rampack_disk_get_stats(disk, &stats), "stats");
    printf("%" PRIu64 " pages\n", stats.pages);
    rampack_free(memory);
    rampack_disk_free(disk);
    return 0;
}
