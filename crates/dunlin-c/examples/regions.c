/* Memory of the server, read and written without its processor.
 *
 *     cc regions.c $(pkg-config --cflags --libs dunlin) -o regions
 *     ./regions dunlin://127.0.0.1:7400
 */

#include <dunlin.h>
#include <stdio.h>
#include <string.h>

#include "services.h"

static int failed(const char *what, dunlin_error *error) {
    fprintf(stderr, "%s: %s\n", what, dunlin_error_message(error));
    dunlin_error_free(error);
    return 1;
}

int main(int count, char **arguments) {
    const char *address = count > 1 ? arguments[1] : "dunlin://127.0.0.1:7400";
    dunlin_client *client = NULL;
    dunlin_region *table = NULL;
    dunlin_error *error = NULL;

    if (dunlin_client_connect(address, NULL, &client, &error) != DUNLIN_CODE_OK)
        return failed("connect", error);
    if (dunlin_region_attach(client, TABLE, &table, &error) != DUNLIN_CODE_OK)
        return failed("attach", error);
    printf("%s has %llu bytes\n", TABLE, (unsigned long long)dunlin_region_length(table));

    char row[6] = {0};
    if (dunlin_region_write(table, 64, "a row", 5, 0, &error) != DUNLIN_CODE_OK ||
        dunlin_region_read(table, 64, row, 5, 0, &error) != DUNLIN_CODE_OK)
        return failed("write and read", error);
    printf("at 64: %s\n", row);

    /* The first 8 bytes are a counter that all clients share. */
    uint64_t before = 0;
    for (int i = 0; i < 3; i++)
        if (dunlin_region_fetch_add(table, 0, 1, 0, &before, &error) != DUNLIN_CODE_OK)
            return failed("fetch_add", error);
    printf("counter was %llu\n", (unsigned long long)before);

    /* The next are a lock: who finds 0 has it. */
    if (dunlin_region_compare_swap(table, 8, 0, 7, 0, &before, &error) != DUNLIN_CODE_OK)
        return failed("compare_swap", error);
    printf("lock: %s\n", before == 0 ? "ours" : "another's");
    if (dunlin_region_compare_swap(table, 8, 0, 7, 0, &before, &error) != DUNLIN_CODE_OK)
        return failed("compare_swap", error);
    printf("lock: %s\n", before == 0 ? "ours" : "taken");

    /* What would leave the region is not sent. */
    if (dunlin_region_read(table, TABLE_LENGTH, row, 1, 0, &error) == DUNLIN_CODE_REGION_BOUNDS)
        printf("beyond: %s\n", dunlin_error_message(error));
    dunlin_error_free(error);

    dunlin_region_free(table);
    dunlin_client_free(client);
    return 0;
}
