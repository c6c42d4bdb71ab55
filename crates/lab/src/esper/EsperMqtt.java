// Esper behind an MQTT broker: subscribes to a filter, reads each payload's fields, has one arithmetic
// statement work on them, and says every half second how many messages went through.
//
// Arguments: the broker (tcp://host:port) and the filter.

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.util.concurrent.atomic.AtomicLong;
import org.eclipse.paho.client.mqttv3.MqttAsyncClient;
import org.eclipse.paho.client.mqttv3.MqttConnectOptions;
import org.eclipse.paho.client.mqttv3.persist.MemoryPersistence;

public class EsperMqtt {
    private static final String TEXT =
            "select id, ts, a * 1.8 + 32 as f, (a + b) / 2 as m from Ev(a * 1.8 + 32 > 1000)";

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.getCommon().addEventType("Ev", new String[] {"id", "ts", "seq", "a", "b"},
                new Object[] {String.class, Long.class, Long.class, Double.class, Double.class});
        EPRuntime runtime = EPRuntimeProvider.getRuntime("burst", configuration);
        EPCompiled compiled =
                EPCompilerProvider.getCompiler().compile(TEXT, new CompilerArguments(configuration));
        runtime.getDeploymentService().deploy(compiled);
        JsonFactory json = new JsonFactory();
        AtomicLong count = new AtomicLong();
        MqttAsyncClient client =
                new MqttAsyncClient(arguments[0], "esper", new MemoryPersistence());
        MqttConnectOptions options = new MqttConnectOptions();
        options.setMaxInflight(1000);
        client.connect(options).waitForCompletion();
        client.subscribe(arguments[1], 0, (topic, message) -> {
            runtime.getEventService().sendEventObjectArray(event(json, message.getPayload()), "Ev");
            count.incrementAndGet();
        }).waitForCompletion();
        System.out.println("ready");
        while (true) {
            Thread.sleep(500);
            System.out.println("count " + count.get());
        }
    }

    private static Object[] event(JsonFactory json, byte[] payload) throws Exception {
        Object[] event = new Object[5];
        try (JsonParser parser = json.createParser(payload)) {
            parser.nextToken();
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.currentName();
                parser.nextToken();
                switch (name) {
                    case "id": event[0] = parser.getText(); break;
                    case "ts": event[1] = parser.getLongValue(); break;
                    case "seq": event[2] = parser.getLongValue(); break;
                    case "a": event[3] = parser.getDoubleValue(); break;
                    case "b": event[4] = parser.getDoubleValue(); break;
                    default: parser.skipChildren();
                }
            }
        }
        return event;
    }
}
