// MQTT clients in Java against one server: Paho for 3.1.1, Paho for 5.0, HiveMQ's for 5.0.
//
// Usage: MqttClients paho3|paho5|hivemq PORT
// All qualities, retained messages, a kept session, user properties. Exits non-zero on the first
// thing that is not as the standard has it.

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public class MqttClients {
    record Got(String topic, String payload, int qos, boolean retained, List<String> user) {}

    public static void main(String[] args) throws Exception {
        String url = "tcp://127.0.0.1:" + args[1];
        switch (args[0]) {
            case "paho3" -> paho3(url);
            case "paho5" -> paho5(url);
            case "hivemq" -> hivemq(Integer.parseInt(args[1]));
            default -> throw new IllegalArgumentException(args[0]);
        }
        System.out.println("{\"checked\": true}");
        System.exit(0);
    }

    static void check(Object got, Object expected) {
        if (!got.equals(expected)) {
            throw new AssertionError("got " + got + ", expected " + expected);
        }
    }

    static Got take(BlockingQueue<Got> inbox) throws InterruptedException {
        Got got = inbox.poll(20, TimeUnit.SECONDS);
        if (got == null) {
            throw new AssertionError("nothing came");
        }
        return got;
    }

    static org.eclipse.paho.client.mqttv3.MqttClient client3(
            String url, String id, boolean clean, boolean present, BlockingQueue<Got> inbox)
            throws Exception {
        var client = new org.eclipse.paho.client.mqttv3.MqttClient(
                url, id, new org.eclipse.paho.client.mqttv3.persist.MemoryPersistence());
        client.setCallback(new org.eclipse.paho.client.mqttv3.MqttCallback() {
            public void connectionLost(Throwable cause) {}

            public void messageArrived(
                    String topic, org.eclipse.paho.client.mqttv3.MqttMessage m) {
                inbox.add(new Got(
                        topic, new String(m.getPayload()), m.getQos(), m.isRetained(), List.of()));
            }

            public void deliveryComplete(
                    org.eclipse.paho.client.mqttv3.IMqttDeliveryToken token) {}
        });
        var options = new org.eclipse.paho.client.mqttv3.MqttConnectOptions();
        options.setCleanSession(clean);
        check(client.connectWithResult(options).getSessionPresent(), present);
        return client;
    }

    static void paho3(String url) throws Exception {
        BlockingQueue<Got> inbox = new LinkedBlockingQueue<>();
        var publisher = client3(url, "paho3-p", true, false, new LinkedBlockingQueue<>());
        var subscriber = client3(url, "paho3-s", false, false, inbox);
        subscriber.subscribe("paho3/#", 2);
        for (int qos = 0; qos < 3; qos++) {
            publisher.publish("paho3/" + qos, ("m" + qos).getBytes(), qos, false);
            check(take(inbox), new Got("paho3/" + qos, "m" + qos, qos, false, List.of()));
        }
        subscriber.disconnect();
        publisher.publish("paho3/away", "one".getBytes(), 1, false);
        publisher.publish("paho3/away", "two".getBytes(), 2, true);
        subscriber = client3(url, "paho3-s", false, true, inbox);
        check(take(inbox).payload(), "one");
        check(take(inbox), new Got("paho3/away", "two", 2, false, List.of()));
        subscriber.subscribe("paho3/away", 1);
        check(take(inbox), new Got("paho3/away", "two", 1, true, List.of()));
        publisher.disconnect();
        subscriber.disconnect();
    }

    static org.eclipse.paho.mqttv5.client.MqttClient client5(
            String url, String id, long expiry, boolean present, BlockingQueue<Got> inbox)
            throws Exception {
        var client = new org.eclipse.paho.mqttv5.client.MqttClient(
                url, id, new org.eclipse.paho.mqttv5.client.persist.MemoryPersistence());
        client.setCallback(new org.eclipse.paho.mqttv5.client.MqttCallback() {
            public void disconnected(
                    org.eclipse.paho.mqttv5.client.MqttDisconnectResponse response) {}

            public void mqttErrorOccurred(
                    org.eclipse.paho.mqttv5.common.MqttException exception) {}

            public void messageArrived(
                    String topic, org.eclipse.paho.mqttv5.common.MqttMessage m) {
                List<String> user = new ArrayList<>();
                m.getProperties().getUserProperties().forEach(
                        p -> user.add(p.getKey() + "=" + p.getValue()));
                inbox.add(new Got(
                        topic, new String(m.getPayload()), m.getQos(), m.isRetained(), user));
            }

            public void deliveryComplete(org.eclipse.paho.mqttv5.client.IMqttToken token) {}

            public void connectComplete(boolean reconnect, String serverUri) {}

            public void authPacketArrived(
                    int reason,
                    org.eclipse.paho.mqttv5.common.packet.MqttProperties properties) {}
        });
        var options = new org.eclipse.paho.mqttv5.client.MqttConnectionOptions();
        options.setCleanStart(false);
        options.setSessionExpiryInterval(expiry);
        check(client.connectWithResult(options).getSessionPresent(), present);
        return client;
    }

    static void paho5(String url) throws Exception {
        BlockingQueue<Got> inbox = new LinkedBlockingQueue<>();
        var publisher = client5(url, "paho5-p", 0, false, new LinkedBlockingQueue<>());
        var subscriber = client5(url, "paho5-s", 60, false, inbox);
        subscriber.subscribe("paho5/#", 2);
        for (int qos = 0; qos < 3; qos++) {
            var message = new org.eclipse.paho.mqttv5.common.MqttMessage(("m" + qos).getBytes());
            message.setQos(qos);
            var properties = new org.eclipse.paho.mqttv5.common.packet.MqttProperties();
            properties.setUserProperties(List.of(
                    new org.eclipse.paho.mqttv5.common.packet.UserProperty("b", "1"),
                    new org.eclipse.paho.mqttv5.common.packet.UserProperty("a", "2")));
            message.setProperties(properties);
            publisher.publish("paho5/same", message);
            check(take(inbox), new Got("paho5/same", "m" + qos, qos, false, List.of("b=1", "a=2")));
        }
        subscriber.disconnect();
        publisher.publish("paho5/away", "one".getBytes(), 1, false);
        publisher.publish("paho5/away", "two".getBytes(), 2, true);
        subscriber = client5(url, "paho5-s", 0, true, inbox);
        check(take(inbox).payload(), "one");
        check(take(inbox), new Got("paho5/away", "two", 2, false, List.of()));
        publisher.disconnect();
        subscriber.disconnect();
    }

    static Mqtt5BlockingClient hive(int port, String id) {
        return MqttClient.builder().useMqttVersion5().identifier(id)
                .serverHost("127.0.0.1").serverPort(port).buildBlocking();
    }

    static void hivemq(int port) throws Exception {
        Mqtt5BlockingClient publisher = hive(port, "hive-p");
        Mqtt5BlockingClient subscriber = hive(port, "hive-s");
        publisher.connect();
        check(subscriber.connectWith().cleanStart(true).sessionExpiryInterval(60).send()
                .isSessionPresent(), false);
        try (var publishes = subscriber.publishes(MqttGlobalPublishFilter.ALL)) {
            subscriber.subscribeWith().topicFilter("hive/#").qos(MqttQos.EXACTLY_ONCE).send();
            subscriber.subscribeWith().topicFilter("$share/g/shared/#").qos(MqttQos.AT_LEAST_ONCE)
                    .send();
            for (MqttQos qos : MqttQos.values()) {
                publisher.publishWith().topic("hive/" + qos.getCode())
                        .payload("m".getBytes()).qos(qos).contentType("text/plain")
                        .responseTopic("answer").correlationData("c".getBytes())
                        .messageExpiryInterval(60)
                        .userProperties().add("b", "1").add("a", "2").applyUserProperties().send();
                Mqtt5Publish got = publishes.receive(20, TimeUnit.SECONDS).orElseThrow();
                check(got.getTopic().toString(), "hive/" + qos.getCode());
                check(got.getQos(), qos);
                check(got.getContentType().orElseThrow().toString(), "text/plain");
                check(got.getResponseTopic().orElseThrow().toString(), "answer");
                check(got.getUserProperties().asList().get(0).getName().toString(), "b");
                check(got.getMessageExpiryInterval().orElseThrow() <= 60, true);
            }
            publisher.publishWith().topic("shared/x").payload("s".getBytes())
                    .qos(MqttQos.EXACTLY_ONCE).send();
            Mqtt5Publish shared = publishes.receive(20, TimeUnit.SECONDS).orElseThrow();
            check(shared.getQos(), MqttQos.AT_LEAST_ONCE);
            subscriber.disconnectWith().sessionExpiryInterval(60).send();
            publisher.publishWith().topic("hive/away").payload("kept".getBytes())
                    .qos(MqttQos.EXACTLY_ONCE).retain(true).send();
            check(subscriber.connectWith().cleanStart(false).sessionExpiryInterval(60).send()
                    .isSessionPresent(), true);
            Mqtt5Publish kept = publishes.receive(20, TimeUnit.SECONDS).orElseThrow();
            check(new String(kept.getPayloadAsBytes()), "kept");
        }
        publisher.disconnect();
        subscriber.disconnect();
    }
}
