/* Keeps records compressed in memory.
 *
 * cc cold.c $(pkg-config --cflags --libs rampack) && ./a.out
 */
#include <errno.h>
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

static int count(void *data, const void *key, size_t key_length, size_t length)
{
    (void)key, (void)key_length, (void)length;
    ++*(int *)data;
    return 0;
}

static void use_store(struct rampack *memory)
{
    struct rampack_store *store = NULL;
    struct rampack_store_options options = {sizeof options, "zstd:3", 8 << 20, 0, 0, 0, 0};
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
    check(rampack_store_set_limit(store, 4 << 20), "limit");
    check(rampack_store_clear(store), "clear");
    rampack_store_free(store);
}

int main(void)
{
    struct rampack *memory = NULL;
    struct rampack_options options = {sizeof options, 64 << 20, 0, 0};
    struct rampack_stats stats = {0};

    printf("rampack %s\n", rampack_version());
    check(rampack_new(&options, &memory), "memory");
    use_store(memory);
    check(rampack_upkeep(memory), "upkeep");
    stats.struct_size = sizeof stats;
    check(rampack_get_stats(memory, &stats), "stats");
    printf("at most %" PRIu64 " MiB\n", stats.limit_bytes >> 20);
    rampack_free(memory);
    return 0;
}
