// Sets a quota as kafka-configs does, sends more than it allows, and prints by how much the
// client's own metrics say that the server held it back. Arguments: bootstrap server.

import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ThrottledProducer {
    public static void main(String[] args) throws Exception {
        var server = Map.<String, Object>of("bootstrap.servers", args[0]);
        var entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, "greedy"));
        try (var admin = Admin.create(server)) {
            var rate = new ClientQuotaAlteration.Op("producer_byte_rate", 50_000.0);
            var change = new ClientQuotaAlteration(entity, List.of(rate));
            admin.alterClientQuotas(List.of(change)).all().get();
            var told = admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
            System.out.println("quotas " + told);
        }
        System.out.println("greedy " + throttled(args[0], "greedy"));
        System.out.println("modest " + throttled(args[0], "modest"));
    }

    /** Sends 700 KB and answers the longest delay that the server told, in milliseconds. */
    static long throttled(String server, String clientId) throws Exception {
        var config = new Properties();
        config.put("bootstrap.servers", server);
        config.put("client.id", clientId);
        config.put("linger.ms", "0");
        config.put("batch.size", "60000");
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int sent = 0; sent < 14; sent++) {
                producer.send(new ProducerRecord<>("throttled", new byte[50_000])).get();
            }
            for (var metric : producer.metrics().entrySet()) {
                if (metric.getKey().name().equals("produce-throttle-time-max")) {
                    return Math.round((Double) metric.getValue().metricValue());
                }
            }
            throw new IllegalStateException("the client counts no throttling");
        }
    }
}
