// The same agent on the oldest C2 client library, 1.18.0, whose way with operations is the strictest.
//
//   mvn -q -B dependency:copy-dependencies -DoutputDirectory=DIR/lib
//   java -jar DIR/lib/ecj-3.40.0.jar --release 17 -cp "$(echo DIR/lib/*.jar | tr ' ' ':')" -d DIR/classes Main.java
//   java -cp 'DIR/classes:DIR/lib/*' Main HEARTBEAT_URL ACK_URL AGENT_ID CLASS flow|COUNT [gzip|none [PERIOD_MS [full]]]
//
// Any Java from 17 on. Prints and exits as ../Main.java does, and takes the same -D of certificates and
// seconds.

import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;

import org.apache.nifi.c2.client.C2ClientConfig;
import org.apache.nifi.c2.client.api.C2Client;
import org.apache.nifi.c2.client.http.C2HttpClient;
import org.apache.nifi.c2.client.service.C2ClientService;
import org.apache.nifi.c2.client.service.C2HeartbeatFactory;
import org.apache.nifi.c2.client.service.FlowIdHolder;
import org.apache.nifi.c2.client.service.model.RuntimeInfoWrapper;
import org.apache.nifi.c2.client.service.operation.C2OperationService;
import org.apache.nifi.c2.client.service.operation.DescribeManifestOperationHandler;
import org.apache.nifi.c2.client.service.operation.UpdateConfigurationOperationHandler;
import org.apache.nifi.c2.protocol.api.AgentRepositories;
import org.apache.nifi.c2.protocol.api.C2Heartbeat;
import org.apache.nifi.c2.protocol.api.C2HeartbeatResponse;
import org.apache.nifi.c2.protocol.api.C2OperationAck;
import org.apache.nifi.c2.protocol.component.api.BuildInfo;
import org.apache.nifi.c2.protocol.component.api.Bundle;
import org.apache.nifi.c2.protocol.component.api.ComponentManifest;
import org.apache.nifi.c2.protocol.component.api.RuntimeManifest;
import org.apache.nifi.c2.protocol.component.api.SchedulingDefaults;
import org.apache.nifi.c2.serializer.C2JacksonSerializer;

public final class Main {
    private static int heartbeats;
    private static int flowAcks;

    public static void main(String[] args) throws Exception {
        boolean untilFlow = args[4].equals("flow");
        int count = untilFlow ? Integer.MAX_VALUE : Integer.parseInt(args[4]);
        String compression = args.length > 5 ? args[5] : "none";
        long periodMs = args.length > 6 ? Long.parseLong(args[6]) : 500;
        boolean full = args.length > 7 && args[7].equals("full");
        Path conf = Files.createTempDirectory("nifi-c2-agent");

        C2ClientConfig.Builder builder = new C2ClientConfig.Builder()
            .c2Url(args[0]).c2AckUrl(args[1]).agentIdentifier(args[2]).agentClass(args[3])
            .fullHeartbeat(full).heartbeatPeriod(periodMs).confDirectory(conf.toString())
            .runtimeManifestIdentifier("nifi").runtimeType("nifi")
            .callTimeout(10_000).readTimeout(5_000).connectTimeout(5_000)
            .c2RequestCompression(compression);
        if (System.getProperty("c2.keystore") != null) {
            String password = System.getProperty("c2.password");
            builder = builder
                .keystoreFilename(System.getProperty("c2.keystore")).keystoreType("PKCS12")
                .keystorePassword(password).keyPassword(password)
                .truststoreFilename(System.getProperty("c2.truststore")).truststoreType("PKCS12")
                .truststorePassword(password);
        }
        C2ClientConfig config = builder.build();

        C2Client client = new Witness(new C2HttpClient(config, new C2JacksonSerializer()));
        FlowIdHolder flowId = new FlowIdHolder(conf.toString());
        C2HeartbeatFactory factory = new C2HeartbeatFactory(config, flowId);
        RuntimeInfoWrapper info = new RuntimeInfoWrapper(new AgentRepositories(), manifest(), Map.of());
        C2OperationService operations = new C2OperationService(List.of(
            new UpdateConfigurationOperationHandler(client, flowId, Main::apply),
            new DescribeManifestOperationHandler(factory, () -> info)));
        C2ClientService service = new C2ClientService(client, factory, operations);

        long deadline = System.nanoTime() + Long.getLong("c2.seconds", 60) * 1_000_000_000L;
        int after = 0;
        while (heartbeats < count && System.nanoTime() < deadline && after < 2) {
            after += untilFlow && flowAcks > 0 ? 1 : 0;
            service.sendHeartbeat(info);
            Thread.sleep(periodMs);
        }
        boolean good = !untilFlow || flowAcks > 0;
        say("finished", "heartbeats", heartbeats, "flow_id", flowId.getFlowId(), "ok", good);
        System.exit(good ? 0 : 1);
    }

    private static boolean apply(byte[] flow) {
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(flow);
            say("flow", "sha256", HexFormat.of().formatHex(digest), "bytes", flow.length);
            return true;
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static RuntimeManifest manifest() {
        Bundle bundle = new Bundle("org.apache.nifi", "nifi-standard-nar", "1.18.0");
        bundle.setComponentManifest(new ComponentManifest());
        BuildInfo build = new BuildInfo();
        build.setVersion("1.18.0");
        RuntimeManifest manifest = new RuntimeManifest();
        manifest.setIdentifier("nifi");
        manifest.setAgentType("nifi");
        manifest.setVersion("1.18.0");
        manifest.setBuildInfo(build);
        manifest.setBundles(List.of(bundle));
        manifest.setSchedulingDefaults(new SchedulingDefaults());
        return manifest;
    }

    private static void say(String event, Object... pairs) {
        StringBuilder line = new StringBuilder("{\"event\":\"").append(event).append('"');
        for (int i = 0; i < pairs.length; i += 2) {
            line.append(",\"").append(pairs[i]).append("\":");
            Object value = pairs[i + 1];
            boolean bare = value == null || value instanceof Number || value instanceof Boolean;
            String text = String.valueOf(value).replace("\\", "\\\\").replace("\"", "\\\"");
            line.append(bare ? text : '"' + text + '"');
        }
        System.out.println(line.append('}'));
    }

    // The library's client, with every call told on standard output.
    private record Witness(C2Client real) implements C2Client {
        @Override
        public Optional<C2HeartbeatResponse> publishHeartbeat(C2Heartbeat heartbeat) {
            Optional<C2HeartbeatResponse> response = real.publishHeartbeat(heartbeat);
            heartbeats++;
            int asked = response.map(C2HeartbeatResponse::getRequestedOperations).map(List::size).orElse(-1);
            if (heartbeats == 1 && response.isPresent()) {
                say("registered", "agent", heartbeat.getAgentId(), "class", heartbeat.getAgentClass());
            }
            say("heartbeat", "number", heartbeats, "answered", response.isPresent(), "operations", asked);
            return response;
        }

        @Override
        public void acknowledgeOperation(C2OperationAck ack) {
            real.acknowledgeOperation(ack);
            boolean manifest = ack.getAgentInfo() != null && ack.getAgentInfo().getAgentManifest() != null;
            say("acknowledged", "operation", ack.getOperationId(),
                "state", ack.getOperationState().getState(), "manifest", manifest);
            if (!manifest) {
                flowAcks++;
            }
        }

        @Override
        public Optional<byte[]> retrieveUpdateContent(String url) {
            return real.retrieveUpdateContent(url);
        }
    }
}
