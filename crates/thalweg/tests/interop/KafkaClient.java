// Apache Kafka's Java client against one broker: every codec byte for byte, a group that commits
// and resumes, idempotence, transactions, admin. Runs with every version of the client's library.
// Usage: KafkaClient PREFIX BOOTSTRAP
// Prints one JSON object with the topic of each codec and the bytes of its payloads; exits non-zero
// on the first thing that is not as Kafka has it.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

@SuppressWarnings("removal")
public class KafkaClient {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static String prefix;
    static String bootstrap;
    static Admin admin;

    public static void main(String[] args) throws Exception {
        prefix = args[0];
        bootstrap = args[1];
        admin = Admin.create(settings(Map.of()));
        List<byte[]> payloads = payloads();
        codecs(payloads);
        groups();
        idempotence(payloads);
        transactions();
        administration();
        admin.close();
        String topics = CODECS.stream()
            .map(codec -> "\"" + codec + "\":\"" + prefix + "-" + codec + "\"")
            .collect(Collectors.joining(","));
        int bytes = payloads.stream().mapToInt(payload -> payload.length).sum();
        System.out.println("{\"topics\":{" + topics + "},\"bytes\":" + bytes + "}");
    }

    static List<byte[]> payloads() {
        List<byte[]> payloads = new ArrayList<>();
        Random random = new Random();
        for (int i = 0; i < 1000; i++) {
            byte[] payload = new byte[100];
            random.nextBytes(payload);
            Arrays.fill(payload, 0, 92, (byte) 'x');
            payloads.add(payload);
        }
        byte[] large = new byte[200_000];
        Arrays.fill(large, (byte) 'y');
        payloads.add(new byte[0]);
        payloads.add(large);
        return payloads;
    }

    static void codecs(List<byte[]> payloads) throws Exception {
        for (String codec : CODECS) {
            String topic = prefix + "-" + codec;
            create(topic, 1);
            produce(topic, 0, payloads,
                Map.of("compression.type", codec, "enable.idempotence", "false", "acks", "1"));
            List<ConsumerRecord<byte[], byte[]>> records = read(topic, payloads.size(), "read_uncommitted");
            for (int i = 0; i < payloads.size(); i++) {
                ConsumerRecord<byte[], byte[]> record = records.get(i);
                expect(Arrays.equals(record.value(), payloads.get(i)), codec + ": payload " + i);
                expect(record.offset() == i, codec + ": offset " + record.offset() + " at " + i);
                expect(text(record.key()).equals("k" + i), codec + ": key of " + i);
                expect(text(record.headers().lastHeader("i").value()).equals("" + i), codec + ": header");
            }
        }
    }

    static void groups() throws Exception {
        String topic = prefix + "-group";
        create(topic, 3);
        for (String word : List.of("old", "new")) {
            Set<String> sent = new TreeSet<>();
            for (int partition = 0; partition < 3; partition++) {
                List<byte[]> values = new ArrayList<>();
                for (int i = 0; i < 20; i++) {
                    values.add(bytes(word + i));
                    sent.add(partition + word + i);
                }
                produce(topic, partition, values, Map.of());
            }
            // The second member goes on after the commits: all that is new, and nothing twice.
            Set<String> got = new TreeSet<>();
            Map<String, Object> member = Map.of("group.id", topic, "enable.auto.commit", "false");
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(member)) {
                consumer.subscribe(List.of(topic));
                for (ConsumerRecord<byte[], byte[]> record : take(consumer, 60)) {
                    got.add(record.partition() + text(record.value()));
                }
                consumer.commitSync();
            }
            expect(got.equals(sent), word + ": sent " + sent + ", got " + got);
        }
        expect(admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(topic)),
            "the group is not listed");
        admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get()
            .forEach((at, committed) -> expect(committed.offset() == 40, at + " at " + committed));
        admin.deleteConsumerGroups(List.of(topic)).all().get();
    }

    static void idempotence(List<byte[]> payloads) throws Exception {
        String topic = prefix + "-idempotent";
        create(topic, 1);
        List<Long> offsets = produce(topic, 0, payloads, Map.of("enable.idempotence", "true"));
        for (int i = 0; i < offsets.size(); i++) {
            expect(offsets.get(i) == i, "offset " + offsets.get(i) + " at " + i);
        }
    }

    static void transactions() throws Exception {
        String topic = prefix + "-transactions";
        create(topic, 1);
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", prefix))) {
            producer.initTransactions();
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                for (int i = 0; i < 10; i++) {
                    producer.send(new ProducerRecord<>(topic, 0, null, bytes("" + number)));
                }
                if (number == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        String committed = read(topic, 20, "read_committed").stream()
            .map(record -> text(record.value())).collect(Collectors.joining());
        expect(committed.equals("00000000002222222222"), "read_committed gave " + committed);
        read(topic, 30, "read_uncommitted");
    }

    static void administration() throws Exception {
        String topic = prefix + "-admin";
        create(topic, 3);
        try {
            create(topic, 3);
            throw new AssertionError("a topic was created twice");
        } catch (ExecutionException error) {
            expect(error.getCause() instanceof TopicExistsException, "" + error);
        }
        expect(admin.listTopics().names().get().contains(topic), "the topic is not listed");
        expect(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 3,
            "the topic has not 3 partitions");
        expect(admin.describeCluster().nodes().get().size() == 1, "there is not one node");
        admin.deleteTopics(List.of(topic)).all().get();
        expect(!admin.listTopics().names().get().contains(topic), "the topic is still listed");
    }

    static void create(String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    static List<Long> produce(String topic, int partition, List<byte[]> values, Map<String, Object> more)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = producer(more)) {
            for (int i = 0; i < values.size(); i++) {
                List<Header> headers = List.of(new RecordHeader("i", bytes("" + i)));
                sent.add(producer.send(
                    new ProducerRecord<>(topic, partition, null, bytes("k" + i), values.get(i), headers)));
            }
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            offsets.add(future.get().offset());
        }
        return offsets;
    }

    static List<ConsumerRecord<byte[], byte[]>> read(String topic, int count, String isolation) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of("isolation.level", isolation))) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            return take(consumer, count);
        }
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (records.size() < count) {
            expect(System.nanoTime() < deadline, "only " + records.size() + " of " + count + " came");
            consumer.poll(Duration.ofMillis(500)).forEach(records::add);
        }
        expect(records.size() == count, records.size() + " records instead of " + count);
        return records;
    }

    static KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        return new KafkaProducer<>(settings(more), new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Properties settings = settings(more);
        settings.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Properties settings(Map<String, Object> more) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.putAll(more);
        return settings;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }

    static void expect(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }
}
