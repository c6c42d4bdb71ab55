/*
 * Load on anything that speaks Kafka's protocol, by librdkafka; one run prints one line of JSON.
 *
 *   load produce ADDRESS TOPIC BYTES ACKS PRODUCERS SECONDS BYTES_MAX
 *   load alone   ADDRESS TOPIC BYTES ACKS PRODUCERS SECONDS BYTES_MAX
 *   load single  ADDRESS TOPIC BYTES ACKS PRODUCERS SECONDS BYTES_MAX
 *   load paced   ADDRESS TOPIC BYTES ACKS RATE      SECONDS BYTES_MAX
 *   load lazy    ADDRESS TOPIC BYTES ACKS RATE      SECONDS BYTES_MAX
 *   load consume ADDRESS TOPIC PARTITIONS RECORDS
 *
 * `produce` sends as fast as it may, in librdkafka's batches (linger 5 ms). `alone` does too, but
 * each record in a request of its own. `single` sends a record, waits for its acknowledgement and
 * sends the next. `paced` sends at a fixed rate without linger;
 * its latency counts from the time at which a record was due, so that a client or server that falls
 * behind does not flatter the result. `lazy` does so four times a second, all that is due by then. Each producer is a client of its own with its own connections.
 * `consume` reads all partitions from their beginning until it has so many records.
 *
 * It is C because librdkafka is: the lab compiles it when it runs, so building Thalweg needs neither.
 */
#include <librdkafka/rdkafka.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { PRODUCERS_MAX = 256, STALL_SECONDS = 30, FLUSH_MS = 120 * 1000 };

struct plan {
    enum { PRODUCE, ALONE, SINGLE, PACED, LAZY } way;
    const char *address, *topic, *acks;
    size_t bytes;
    double rate, seconds;
    long long records_max; /* of one producer */
};

struct producer {
    const struct plan *plan;
    pthread_t thread;
    rd_kafka_t *client;
    double *latencies_ms, *due; /* by record; only where every record is timed */
    long long sent;
    atomic_llong delivered, failed;
    atomic_int is_done;
};

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static int is_paced(const struct plan *plan) { return plan->way == PACED || plan->way == LAZY; }

static int is_timed(const struct plan *plan) { return plan->way == SINGLE || is_paced(plan); }

static void *zeroed(size_t count, size_t bytes) {
    void *memory = calloc(count, bytes);
    if (!memory) give_up("cannot get memory", "the system has none");
    return memory;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[512];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK)
        give_up(name, why);
}

static void on_delivery(rd_kafka_t *client, const rd_kafka_message_t *message, void *opaque) {
    struct producer *producer = opaque;
    (void)client;
    if (producer->due) {
        long long index = (long long)(size_t)message->_private;
        producer->latencies_ms[index] = (now() - producer->due[index]) * 1e3;
    }
    if (message->err) {
        if (atomic_fetch_add(&producer->failed, 1) == 0)
            fprintf(stderr, "a record failed: %s\n", rd_kafka_err2str(message->err));
    }
    atomic_fetch_add(&producer->delivered, 1);
}

static rd_kafka_t *client_of(struct producer *producer) {
    const struct plan *plan = producer->plan;
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", plan->address);
    set(conf, "log_level", "3");
    set(conf, "acks", plan->acks);
    set(conf, "linger.ms", plan->way == PRODUCE || plan->way == LAZY ? "5" : "0");
    /* Requests of one record fill a server's and a client's buffers more than they say. */
    set(conf, "queue.buffering.max.messages", plan->way == ALONE ? "1000" : "200000");
    if (plan->way == ALONE) set(conf, "batch.num.messages", "1");
    set(conf, "queue.buffering.max.kbytes", "65536");
    set(conf, "socket.nagle.disable", "true");
    rd_kafka_conf_set_opaque(conf, producer);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!client) give_up("cannot make a producer", why);
    return client;
}

static void send_one(struct producer *producer, rd_kafka_topic_t *topic, char *payload) {
    for (;;) {
        int refused = rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY, payload,
                                       producer->plan->bytes, NULL, 0,
                                       (void *)(size_t)producer->sent);
        if (!refused) break;
        if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
            give_up("cannot produce", rd_kafka_err2str(rd_kafka_last_error()));
        rd_kafka_poll(producer->client, 10);
    }
    producer->sent++;
}

/* Stamps deliveries at once while the sender sleeps until the next record is due. */
static void *watch(void *argument) {
    struct producer *producer = argument;
    while (!atomic_load(&producer->is_done)) rd_kafka_poll(producer->client, 50);
    return NULL;
}

static void wait_until(double due) {
    double rest = due - now();
    if (rest > 0) {
        struct timespec pause = {(time_t)rest, (long)((rest - (double)(time_t)rest) * 1e9)};
        nanosleep(&pause, NULL);
    }
}

static void send_paced(struct producer *producer, rd_kafka_topic_t *topic, char *payload) {
    pthread_t watcher;
    if (pthread_create(&watcher, NULL, watch, producer)) give_up("cannot start", "a thread");
    double began = now();
    while (producer->sent < producer->plan->records_max) {
        double due = (double)producer->sent / producer->plan->rate;
        if (producer->plan->way == LAZY) due -= fmod(due, 0.25);
        due += began;
        wait_until(due);
        producer->due[producer->sent] = due;
        send_one(producer, topic, payload);
    }
    double deadline = now() + STALL_SECONDS;
    while (atomic_load(&producer->delivered) < producer->sent && now() < deadline)
        wait_until(now() + 0.001);
    atomic_store(&producer->is_done, 1);
    pthread_join(watcher, NULL);
}

static void *produce(void *argument) {
    struct producer *producer = argument;
    const struct plan *plan = producer->plan;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(producer->client, plan->topic, NULL);
    char *payload = zeroed(1, plan->bytes);
    unsigned noise = 7;
    for (size_t at = 0; at < plan->bytes; at++) {
        noise = noise * 1664525u + 1013904223u;
        payload[at] = (char)(noise >> 24);
    }
    double deadline = now() + plan->seconds;
    if (is_paced(plan)) {
        send_paced(producer, topic, payload);
    } else {
        while (producer->sent < plan->records_max && now() < deadline) {
            if (plan->way == SINGLE) {
                producer->due[producer->sent] = now();
                send_one(producer, topic, payload);
                while (atomic_load(&producer->delivered) < producer->sent)
                    rd_kafka_poll(producer->client, 100);
            } else {
                for (int turn = 0; turn < 64 && producer->sent < plan->records_max; turn++)
                    send_one(producer, topic, payload);
                rd_kafka_poll(producer->client, 0);
            }
        }
    }
    if (rd_kafka_flush(producer->client, FLUSH_MS)) give_up("cannot flush", "it takes too long");
    free(payload);
    rd_kafka_topic_destroy(topic);
    return NULL;
}

static int by_size(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_result(double seconds, long long records, double *latencies, long long timed) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"records\":%lld,\"seconds\":%.6f,\"client_cpu_seconds\":%.6f,\"latency_ms\":[", records,
           seconds, cpu);
    if (timed > 0) {
        qsort(latencies, (size_t)timed, sizeof *latencies, by_size);
        /* A thousand steps, so that the 99.9th percentile is one of them. */
        for (int step = 0; step <= 1000; step++)
            printf("%s%.4f", step ? "," : "", latencies[(timed - 1) * step / 1000]);
    }
    printf("]}\n");
}

static void run_producers(const struct plan *plan, int count) {
    static struct producer producers[PRODUCERS_MAX];
    if (count < 1 || count > PRODUCERS_MAX) give_up("PRODUCERS", "out of range");
    for (int index = 0; index < count; index++) {
        struct producer *producer = &producers[index];
        producer->plan = plan;
        if (is_timed(plan)) {
            producer->due = zeroed((size_t)plan->records_max, sizeof(double));
            producer->latencies_ms = zeroed((size_t)plan->records_max, sizeof(double));
        }
        producer->client = client_of(producer);
    }
    double began = now();
    for (int index = 0; index < count; index++)
        if (pthread_create(&producers[index].thread, NULL, produce, &producers[index]))
            give_up("cannot start", "a thread");
    long long records = 0, failed = 0;
    for (int index = 0; index < count; index++) {
        pthread_join(producers[index].thread, NULL);
        records += atomic_load(&producers[index].delivered);
        failed += atomic_load(&producers[index].failed);
    }
    double seconds = now() - began;
    if (failed) give_up("records failed", "see above");
    double *latencies = NULL;
    long long timed = 0;
    if (is_timed(plan)) {
        latencies = zeroed((size_t)records + 1, sizeof(double));
        for (int index = 0; index < count; index++) {
            size_t own = (size_t)atomic_load(&producers[index].delivered);
            memcpy(latencies + timed, producers[index].latencies_ms, own * sizeof(double));
            timed += (long long)own;
        }
    }
    print_result(seconds, records, latencies, timed);
    /* The clients are left to the end of the process: tearing them down is not the load. */
}

struct reading {
    long long records;
};

static void on_record(rd_kafka_message_t *message, void *opaque) {
    struct reading *reading = opaque;
    if (!message->err)
        reading->records++;
    else if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF)
        give_up("cannot consume", rd_kafka_message_errstr(message));
}

static void run_consumer(const char *address, const char *name, int partitions, long long wanted) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", address);
    set(conf, "log_level", "3");
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (!client) give_up("cannot make a consumer", why);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(client, name, NULL);
    /* Else the client may wait half a second for its own timer before it learns the topic. */
    const struct rd_kafka_metadata *found;
    rd_kafka_resp_err_t error = rd_kafka_metadata(client, 0, topic, &found, 10000);
    if (error) give_up("cannot consume", rd_kafka_err2str(error));
    double began = now();
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    for (int partition = 0; partition < partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, RD_KAFKA_OFFSET_BEGINNING, queue))
            give_up("cannot consume", rd_kafka_err2str(rd_kafka_last_error()));
    struct reading reading = {0};
    double moved = now();
    while (reading.records < wanted) {
        long long before = reading.records;
        if (rd_kafka_consume_callback_queue(queue, 200, on_record, &reading) < 0)
            give_up("cannot consume", rd_kafka_err2str(rd_kafka_last_error()));
        if (reading.records != before)
            moved = now();
        else if (now() - moved > STALL_SECONDS)
            give_up("cannot consume", "no record comes any more");
    }
    print_result(now() - began, reading.records, NULL, 0);
}

int main(int count, char **words) {
    if (count == 6 && !strcmp(words[1], "consume")) {
        run_consumer(words[2], words[3], atoi(words[4]), atoll(words[5]));
        fflush(stdout);
        _Exit(0);
    }
    if (count != 9) give_up("usage", "see the head of this file");
    struct plan plan = {.way = !strcmp(words[1], "single")  ? SINGLE
                               : !strcmp(words[1], "paced") ? PACED
                               : !strcmp(words[1], "lazy")  ? LAZY
                               : !strcmp(words[1], "alone") ? ALONE
                                                            : PRODUCE,
                        .address = words[2],
                        .topic = words[3],
                        .bytes = (size_t)atoll(words[4]),
                        .acks = words[5],
                        .rate = atof(words[6]),
                        .seconds = atof(words[7])};
    int producers = is_paced(&plan) ? 1 : atoi(words[6]);
    plan.records_max = atoll(words[8]) / (long long)plan.bytes / producers;
    if (is_paced(&plan)) plan.records_max = (long long)(plan.rate * plan.seconds);
    if (plan.records_max < 1) plan.records_max = 1;
    run_producers(&plan, producers);
    fflush(stdout);
    _Exit(0);
}
