/* Keeps records compressed in memory.
 *
 * cc cold.c $(pkg-config --cflags --libs rampack) && ./a.out
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rampack.h>

static void check(int code, const char *what)
{
    if (code < 0) {
        fprintf(stderr, "%s: %s (%s)\n", what, rampack_last_error(), strerror(-code));
        exit(1);
    }
}

static int count(void *data, const void *key, size_t key_length, size_t length)
{
    (void)key, (void)key_length, (void)length;
    ++*(int *)data;
    return 0;
}

/* Any thread may call it. */
static void left(void *data, int why, const void *key, size_t key_length, const void *value,
                 size_t length)
{
    (void)key, (void)key_length;
    if (why == RAMPACK_EXPIRED || (value != NULL && length == 4096))
        ++*(int *)data;
}

static void pressed(void *data, int why)
{
    if (why == RAMPACK_PRESSURE_LIMIT || why == RAMPACK_PRESSURE_SYSTEM)
        *(int *)data = why;
}

static void several(struct rampack_store *store)
{
    char one[8] = "", two[2] = "";
    struct rampack_item puts[2] = {{"one", 3, "first", 6, 1}, {"two", 3, "second", 7, 1}};
    struct rampack_item gets[3] = {{"one", 3, one, sizeof one, 1},
                                   {"two", 3, two, sizeof two, 1},
                                   {"none", 4, two, sizeof two, 1}};
    int code;

    check(rampack_store_put_many(store, puts, 2, 60), "put_many");
    code = rampack_store_get_many(store, gets, 3);
    printf("several: %s, %d bytes; a short buffer for %d: %s; none: %s; the first: %s\n", one,
           (int)gets[0].length, (int)gets[1].length, gets[1].status == -ERANGE ? "yes" : "no",
           gets[2].status == -ENOENT ? "yes" : "no", code == -ERANGE ? "yes" : "no");
}

/* Values leave a store of 1 MiB that nobody reads, and its memory is short. */
static void evict(void)
{
    struct rampack *memory = NULL;
    struct rampack_store *store = NULL;
    struct rampack_store_stats stats = {0};
    int gone = 0, why = 0, n, k;
    struct rampack_options options = {sizeof options, 1 << 20, 1, 0, pressed, &why};
    struct rampack_store_options small = {sizeof small, NULL, 1 << 20, 0, 0, 0, 0,
                                          left, &gone, NULL, 0, 0};
    unsigned char noise[4096];
    uint32_t state = 1;

    check(rampack_new(&options, &memory), "memory");
    check(rampack_store_new(memory, &small, &store), "a store");
    for (n = 0; n < 400; n++) {
        for (k = 0; k < 4096; k++)
            noise[k] = (unsigned char)((state = state * 1664525 + 1013904223) >> 24);
        check(rampack_store_put(store, &n, sizeof n, noise, sizeof noise, 0), "put");
    }
    check(rampack_upkeep(memory), "upkeep");
    stats.struct_size = sizeof stats;
    check(rampack_store_get_stats(store, &stats), "stats");
    printf("each that left was told: %s; memory is short: %s\n",
           gone > 0 && (uint64_t)gone == stats.evicted ? "yes" : "no", why ? "yes" : "no");
    rampack_store_free(store);
    rampack_free(memory);
}

/* What nobody reads gets smaller, in a clone, too, which keeps what the other gives up. */
static void recompress_and_clone(void)
{
    struct rampack *memory = NULL;
    struct rampack_store *store = NULL, *clone = NULL;
    struct rampack_store_stats stats = {0};
    struct rampack_options options = {sizeof options, 64 << 20, 1, 0, NULL, NULL};
    struct rampack_store_options cold = {0};
    char value[3000], back[3000];
    size_t length = 0;
    int n, k;

    cold.struct_size = sizeof cold;
    cold.recompress = "zstd";
    check(rampack_new(&options, &memory), "memory");
    check(rampack_store_new(memory, &cold, &store), "a store");
    for (n = 0; n < 200; n++) {
        for (k = 0; k < 3000; k++)
            value[k] = (char)('0' + (n * k + k / 7) % 10);
        check(rampack_store_put(store, &n, sizeof n, value, sizeof value, 0), "put");
    }
    check(rampack_store_clone(store, &clone), "clone");
    for (n = 0; n < 200; n++)
        check(rampack_upkeep(memory), "upkeep");
    check(rampack_store_clear(store), "clear");
    n = 199;
    check(rampack_store_get(clone, &n, sizeof n, back, sizeof back, &length), "get");
    stats.struct_size = sizeof stats;
    check(rampack_store_get_stats(clone, &stats), "stats");
    printf("a clone has %" PRIu64 " values, %s; compressed once more: %s; saved: %s; lost: %d\n",
           stats.values, memcmp(value, back, 3000) == 0 ? "as they were" : "and others",
           stats.recompressed > 0 ? "yes" : "no", stats.saved_bytes > 0 ? "yes" : "no",
           (int)stats.lost);
    rampack_store_free(store);
    rampack_store_free(clone);
    rampack_free(memory);
}

/* All values go to a file, and come back. */
static void save(struct rampack_store *store)
{
    FILE *file = tmpfile();
    uint64_t saved = 0, loaded = 0;
    size_t length;

    if (file == NULL)
        exit(1);
    check(rampack_store_save(store, fileno(file), &saved), "save");
    check(rampack_store_clear(store), "clear");
    lseek(fileno(file), 0, SEEK_SET);
    check(rampack_store_load(store, fileno(file), &loaded), "load");
    printf("saved and loaded: %s; user:8 is there: %s\n", saved == loaded ? "yes" : "no",
           rampack_store_length(store, "user:8", 6, &length) == 0 ? "yes" : "no");
    if (rampack_store_load(store, fileno(file), NULL) == -EINVAL)
        printf("again: %s\n", rampack_last_error());
    fclose(file);
}

static void use_store(struct rampack *memory)
{
    struct rampack_store *store = NULL;
    struct rampack_store_options options = {sizeof options, "zstd:3", 8 << 20, 0, 0, 0, 0,
                                            NULL, NULL, NULL, 0, 0};
    struct rampack_store_stats stats = {0};
    char key[32], value[400], back[400];
    size_t length = 0;
    int n, seen = 0;

    check(rampack_store_new(memory, &options, &store), "a store");
    for (n = 0; n < 1000; n++) {
        snprintf(key, sizeof key, "user:%d", n);
        snprintf(value, sizeof value, "{\"user\": %d, \"name\": \"somebody\", \"mails\": []}", n);
        check(rampack_store_put(store, key, strlen(key), value, strlen(value) + 1, 0), "put");
    }
    check(rampack_store_get(store, "user:7", 6, back, sizeof back, &length), "get");
    printf("user:7 is %s, %d bytes\n", back, (int)length);
    if (rampack_store_get(store, "user:7", 6, back, 5, &length) == -ERANGE)
        printf("in 5 bytes: %s\n", rampack_last_error());
    check(rampack_store_get_range(store, "user:7", 6, 1, back, 6, &length), "get_range");
    printf("a part: %.*s\n", (int)length, back);
    check(rampack_store_remove(store, "user:7", 6), "remove");
    if (rampack_store_length(store, "user:7", 6, &length) == -ENOENT)
        printf("user:7: %s\n", rampack_last_error());
    check(rampack_store_keys(store, count, &seen), "keys");
    stats.struct_size = sizeof stats;
    check(rampack_store_get_stats(store, &stats), "stats");
    printf("%d keys, %" PRIu64 " values; less memory than data: %s\n", seen, stats.values,
           stats.memory_bytes < stats.data_bytes ? "yes" : "no");
    several(store);
    save(store);
    check(rampack_store_set_limit(store, 4 << 20), "limit");
    check(rampack_store_clear(store), "clear");
    rampack_store_free(store);
}

int main(void)
{
    struct rampack *memory = NULL;
    struct rampack_options options = {sizeof options, 64 << 20, 0, 0, NULL, NULL};
    struct rampack_stats stats = {0};

    printf("rampack %s\n", rampack_version());
    check(rampack_new(&options, &memory), "memory");
    use_store(memory);
    check(rampack_upkeep(memory), "upkeep");
    stats.struct_size = sizeof stats;
    check(rampack_get_stats(memory, &stats), "stats");
    printf("at most %" PRIu64 " MiB\n", stats.limit_bytes >> 20);
    rampack_free(memory);
    evict();
    recompress_and_clone();
    return 0;
}
