// Kafka Streams' word count with exactly_once_v2, stopped in between and started again: the counts
// come out as if every line had been read once. The second round has as many instances as are asked for.
// Usage: WordCount BOOTSTRAP GROUP_PROTOCOL INSTANCES
// Exits non-zero when the counts are others.

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    static final List<String> WORDS = List.of("source", "river", "delta", "sea");
    static final int PARTITIONS = 2;
    static final int LINES = 200;
    static String bootstrap;
    static String protocol;

    public static void main(String[] args) {
        try {
            bootstrap = args[0];
            protocol = args[1];
            run(Integer.parseInt(args[2]));
        } catch (Throwable error) {
            error.printStackTrace();
            // The threads of Kafka Streams would keep the process alive.
            Runtime.getRuntime().halt(1);
        }
    }

    static void run(int instances) throws Exception {
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(
                new NewTopic("lines", PARTITIONS, (short) 1),
                new NewTopic("counts", PARTITIONS, (short) 1))).all().get();
        }
        List<Path> states = new ArrayList<>();
        for (int instance = 0; instance < instances; instance++) {
            states.add(Files.createTempDirectory("word-count"));
        }
        Map<String, Long> counts = new HashMap<>();
        try (KafkaConsumer<String, Long> results = results()) {
            for (int round = 1; round <= 2; round++) {
                write();
                // In the second round the state comes back from what the first one left.
                List<KafkaStreams> running = new ArrayList<>();
                for (Path state : round == 1 ? states.subList(0, 1) : states) {
                    running.add(start(state));
                }
                follow(results, counts, round);
                for (KafkaStreams streams : running) {
                    streams.close(Duration.ofSeconds(30));
                }
            }
        }
        System.out.println("counted " + counts);
    }

    static void write() {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings(), new StringSerializer(), new StringSerializer())) {
            for (int line = 0; line < LINES; line++) {
                producer.send(new ProducerRecord<>("lines", line % PARTITIONS, null, String.join(" ", WORDS)));
            }
        }
    }

    static KafkaStreams start(Path state) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        Properties settings = settings();
        settings.put("application.id", "word-count");
        settings.put("group.protocol", protocol);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("dsl.store.suppliers.class",
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        settings.put("state.dir", state.toString());
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        settings.put("statestore.cache.max.bytes", "0");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        return streams;
    }

    // Every update comes once and in order, so a word's count goes up one by one.
    static void follow(KafkaConsumer<String, Long> results, Map<String, Long> counts, int round) {
        long expected = (long) round * LINES;
        long deadline = System.nanoTime() + Duration.ofSeconds(110).toNanos();
        while (!WORDS.stream().allMatch(word -> counts.getOrDefault(word, 0L) == expected)) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("round " + round + " ended at " + counts);
            }
            for (ConsumerRecord<String, Long> record : results.poll(Duration.ofMillis(200))) {
                long before = counts.getOrDefault(record.key(), 0L);
                if (record.value() != before + 1) {
                    throw new AssertionError(record.key() + " went from " + before + " to " + record.value());
                }
                counts.put(record.key(), record.value());
            }
        }
    }

    static KafkaConsumer<String, Long> results() {
        Properties settings = settings();
        settings.put("isolation.level", "read_committed");
        KafkaConsumer<String, Long> consumer =
            new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer());
        List<TopicPartition> partitions = List.of(new TopicPartition("counts", 0), new TopicPartition("counts", 1));
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        return consumer;
    }

    static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }
}
