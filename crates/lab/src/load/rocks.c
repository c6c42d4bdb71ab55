// RocksDB in the shape in which the known agent keeps its repositories in it:
//
//   rocks FOLDER BYTES BATCH SECONDS
//
// One thread makes sessions of BATCH FlowFiles of BYTES random bytes each. A session's content goes
// into one write batch of merges, synced (two memtables of 4 MB, direct reads, direct writes of flush
// and compaction, an appending merge operator); its FlowFile records (260 bytes) and its provenance
// events (two of 400 bytes each) into write batches of stores of their own, not synced. The FlowFiles
// of earlier sessions are deleted each second, as its purging threads do. Prints one line of JSON.

#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static void check(char *error, const char *what) {
    if (error != NULL) {
        fprintf(stderr, "%s: %s\n", what, error);
        exit(1);
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static uint64_t state = 0x9e3779b97f4a7c15u;

static void fill(char *bytes, size_t length) {
    for (size_t at = 0; at < length; at += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        size_t part = length - at < 8 ? length - at : 8;
        memcpy(bytes + at, &state, part);
    }
}

static char *joined(const char *before, size_t before_length, const char *const *operands,
                    const size_t *lengths, int count, unsigned char *success, size_t *length) {
    size_t total = before_length;
    for (int index = 0; index < count; index++) total += lengths[index];
    char *all = malloc(total > 0 ? total : 1);
    if (before_length > 0) memcpy(all, before, before_length);
    size_t at = before_length;
    for (int index = 0; index < count; index++) {
        memcpy(all + at, operands[index], lengths[index]);
        at += lengths[index];
    }
    *success = 1;
    *length = total;
    return all;
}

static char *full_merge(void *unused, const char *key, size_t key_length, const char *before,
                        size_t before_length, const char *const *operands, const size_t *lengths,
                        int count, unsigned char *success, size_t *length) {
    (void)unused, (void)key, (void)key_length;
    return joined(before, before == NULL ? 0 : before_length, operands, lengths, count, success,
                  length);
}

static char *partial_merge(void *unused, const char *key, size_t key_length,
                           const char *const *operands, const size_t *lengths, int count,
                           unsigned char *success, size_t *length) {
    (void)unused, (void)key, (void)key_length;
    return joined(NULL, 0, operands, lengths, count, success, length);
}

static const char *name(void *unused) {
    (void)unused;
    return "append";
}

static void nothing(void *unused) { (void)unused; }

static void release(void *unused, const char *value, size_t length) {
    (void)unused, (void)length;
    free((void *)value);
}

static rocksdb_t *store(const char *folder, const char *which, size_t memtable, int memtables,
                        int is_content) {
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_write_buffer_size(options, memtable);
    rocksdb_options_set_max_write_buffer_number(options, memtables);
    rocksdb_options_set_use_direct_reads(options, 1);
    rocksdb_options_set_use_direct_io_for_flush_and_compaction(options, 1);
    if (is_content) {
        rocksdb_options_set_merge_operator(
            options, rocksdb_mergeoperator_create(NULL, nothing, full_merge, partial_merge, release,
                                                  name));
    }
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, which);
    char *error = NULL;
    rocksdb_t *opened = rocksdb_open(options, path, &error);
    check(error, "open");
    return opened;
}

enum { KEY = 36, RECORD = 260, EVENT = 400 };

static void key_of(char *key, uint64_t number, int part) {
    // As long as the text of a uuid; in order, as its time-based ones nearly are.
    snprintf(key, 64, "%016llx-%04d-0000-0000-0000", (unsigned long long)number, part);
}
int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "rocks FOLDER BYTES BATCH SECONDS\n");
        return 2;
    }
    size_t bytes = strtoull(arguments[2], NULL, 10);
    uint64_t batch = strtoull(arguments[3], NULL, 10);
    double length = strtod(arguments[4], NULL);
    rocksdb_t *content = store(arguments[1], "content", 4 << 20, 2, 1);
    rocksdb_t *records = store(arguments[1], "flowfile", 8 << 20, 20, 0);
    rocksdb_t *events = store(arguments[1], "provenance", 8 << 20, 20, 0);
    rocksdb_writeoptions_t *synced = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(synced, 1);
    rocksdb_writeoptions_t *unsynced = rocksdb_writeoptions_create();
    rocksdb_writebatch_t *write = rocksdb_writebatch_create();
    char *value = malloc(bytes + 8), record[RECORD], event[EVENT], key[64];
    fill(record, RECORD);
    fill(event, EVENT);
    char *error = NULL;
    uint64_t made = 0, gone = 0;
    double began = now(), purged = began;
    while (now() - began < length) {
        for (uint64_t number = made; number < made + batch; number++) {
            fill(value, bytes);
            key_of(key, number, 0);
            rocksdb_writebatch_merge(write, key, KEY, value, bytes);
        }
        rocksdb_write(content, synced, write, &error);
        check(error, "content");
        rocksdb_writebatch_clear(write);
        for (uint64_t number = made; number < made + batch; number++) {
            key_of(key, number, 0);
            rocksdb_writebatch_put(write, key, KEY, record, RECORD);
        }
        rocksdb_write(records, unsynced, write, &error);
        check(error, "records");
        rocksdb_writebatch_clear(write);
        for (uint64_t number = made; number < made + batch; number++) {
            for (int part = 1; part <= 2; part++) {
                key_of(key, number, part);
                rocksdb_writebatch_put(write, key, KEY, event, EVENT);
            }
        }
        rocksdb_write(events, unsynced, write, &error);
        check(error, "events");
        rocksdb_writebatch_clear(write);
        made += batch;
        if (now() - purged >= 1.0) {
            for (; gone < made; gone++) {
                key_of(key, gone, 0);
                rocksdb_writebatch_delete(write, key, KEY);
            }
            rocksdb_write(records, unsynced, write, &error);
            check(error, "purge");
            rocksdb_write(content, unsynced, write, &error);
            check(error, "purge");
            rocksdb_writebatch_clear(write);
            purged = now();
        }
    }
    double seconds = now() - began;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"flow_files\":%llu,\"seconds\":%.6f,\"cpu_seconds\":%.3f}\n", (unsigned long long)made,
           seconds,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    rocksdb_close(content);
    rocksdb_close(records);
    rocksdb_close(events);
    return 0;
}
