// One member of a consumer group with Apache Kafka's Java client.
// Usage: GroupMember BOOTSTRAP TOPIC GROUP COUNT [classic|cooperative|consumer [INSTANCE]]
// Prints "assigned N" at each rebalance and the partition, offset and value of each record; ends
// after COUNT records, committed. Told to end (SIGTERM) it leaves the group; killed it commits
// nothing more.

import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class GroupMember {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        // By default a client that finds no server starts anew from its bootstrap servers, takes
        // its topics for changed, and joins again. Without that, joins are the server's doing.
        settings.put("metadata.recovery.strategy", "none");
        if (args.length > 4 && args[4].equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "500");
        }
        if (args.length > 4 && args[4].equals("cooperative")) {
            settings.put(
                "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
        }
        if (args.length > 5) {
            settings.put("group.instance.id", args[5]);
        }
        settings.put("max.poll.records", "50");
        int left = Integer.parseInt(args[3]);
        AtomicBoolean told = new AtomicBoolean();
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            told.set(true);
            try {
                main.join();
            } catch (InterruptedException ended) {
                main.interrupt();
            }
        }));
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[1]), new ConsumerRebalanceListener() {
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}

                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    System.out.println("assigned " + consumer.assignment().size());
                    System.out.flush();
                }
            });
            while (left > 0 && !told.get()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    System.out.println(
                        "record " + record.partition() + " " + record.offset() + " " + record.value());
                    left--;
                }
                System.out.flush();
                try {
                    consumer.commitSync();
                } catch (CommitFailedException | RebalanceInProgressException refused) {
                    // The group went on without this member: it joins again with the next poll.
                    System.out.println("commit refused");
                }
            }
        }
        System.out.println("done");
    }
}
