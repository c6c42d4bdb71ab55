// Two producers of transaction protocol version 2 that commit and abort while the broker is killed
// and started again. Each transaction writes a record to both partitions and a group's offset; none
// of them is announced to the broker before its first record, and each end gives the producer a new
// epoch.
// Usage: TransactionsUnderKills BOOTSTRAP TOPIC COMMITTED ABORTED STOP
// Notes the number of each transaction in the file COMMITTED or ABORTED once its end was answered;
// worker 0 has the even numbers and worker 1 the odd ones. Ends when the file STOP is there.

import java.io.FileOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

@SuppressWarnings("removal")
public class TransactionsUnderKills {
    static final int WORKERS = 2;
    static String bootstrap;
    static String topic;
    static FileOutputStream committed;
    static FileOutputStream aborted;
    static Path stop;

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        committed = new FileOutputStream(args[2], true);
        aborted = new FileOutputStream(args[3], true);
        stop = Path.of(args[4]);
        eachEndGivesANewEpoch();
        var threads = Executors.newFixedThreadPool(WORKERS);
        List<Callable<Void>> workers = List.of(() -> work(0), () -> work(1));
        for (Future<Void> worker : threads.invokeAll(workers)) {
            worker.get();
        }
        threads.shutdown();
    }

    /** Which it does only in version 2: in version 1 an introduction alone does. */
    static void eachEndGivesANewEpoch() throws Exception {
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap));
                var producer = producer("probe")) {
            producer.initTransactions();
            int[] epochs = new int[2];
            for (int nth = 0; nth < 2; nth++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, bytes("probe"))).get();
                producer.abortTransaction();
                var told = admin.describeTransactions(List.of("probe")).all().get().get("probe");
                epochs[nth] = told.producerEpoch();
            }
            if (epochs[1] <= epochs[0]) {
                throw new AssertionError("epochs " + epochs[0] + " and " + epochs[1]);
            }
        }
    }

    static Void work(int worker) throws Exception {
        KafkaProducer<byte[], byte[]> producer = null;
        Random random = new Random();
        for (int number = worker; !Files.exists(stop); number += WORKERS) {
            try {
                if (producer == null) {
                    producer = producer("worker-" + worker);
                    patiently(producer::initTransactions);
                }
                producer.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    byte[] value = bytes(number + ":" + partition);
                    producer.send(new ProducerRecord<>(topic, partition, null, value));
                }
                // Records go out before the end does, or together with it.
                if (random.nextBoolean()) {
                    producer.flush();
                }
                var offset = Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(number));
                producer.sendOffsetsToTransaction(offset, new ConsumerGroupMetadata("group-" + worker));
                if (number / WORKERS % 3 == 2) {
                    patiently(producer::abortTransaction);
                    note(aborted, number);
                } else {
                    patiently(producer::commitTransaction);
                    note(committed, number);
                }
            } catch (KafkaException error) {
                // Nobody knows how this one ended; the next instance ends it if it is open.
                System.err.println("transaction " + number + ": " + error);
                if (producer != null) {
                    producer.close(Duration.ZERO);
                }
                producer = null;
            }
        }
        if (producer != null) {
            producer.close();
        }
        return null;
    }

    /** A call that timed out goes on where it was. */
    static void patiently(Runnable call) {
        for (int again = 0; ; again++) {
            try {
                call.run();
                return;
            } catch (TimeoutException error) {
                if (again == 10) {
                    throw error;
                }
            }
        }
    }

    static synchronized void note(FileOutputStream file, int number) throws Exception {
        file.write(bytes(number + "\n"));
    }

    static KafkaProducer<byte[], byte[]> producer(String id) {
        var settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("linger.ms", "1");
        settings.put("reconnect.backoff.ms", "20");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("retry.backoff.ms", "20");
        settings.put("retry.backoff.max.ms", "200");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
