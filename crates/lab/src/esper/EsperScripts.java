// Runs scripts of statements and events on Esper with a clock of their own.
//
// A script is lines of the file that is named, or of standard input, and ends with a line `end`:
//   statement TEXT            compiled and deployed, at the time that the clock shows
//   time MS                   moves the clock
//   event TYPE k=v ...        s: text, i: whole number, d: double, each as name=s:text; no blanks
// What comes is written per script, and ends with `end` too:
//   row MS STATEMENT new|old {"column":value,...}
//   call MS STATEMENT         a call of the listener, before its rows
//   error STATEMENT TEXT      it does not compile, or fails on an event
// The clock of a script begins at 0; under it lies a day of Esper's own, since its clock cannot
// go back.

import com.espertech.esper.common.client.EPCompiled;
import com.espertech.esper.common.client.EventBean;
import com.espertech.esper.common.client.configuration.Configuration;
import com.espertech.esper.common.client.hook.exception.ExceptionHandler;
import com.espertech.esper.common.client.hook.exception.ExceptionHandlerFactory;
import com.espertech.esper.common.client.hook.exception.ExceptionHandlerFactoryContext;
import com.espertech.esper.compiler.client.CompilerArguments;
import com.espertech.esper.compiler.client.EPCompileException;
import com.espertech.esper.compiler.client.EPCompilerProvider;
import com.espertech.esper.runtime.client.EPDeployment;
import com.espertech.esper.runtime.client.EPRuntime;
import com.espertech.esper.runtime.client.EPRuntimeProvider;
import com.espertech.esper.runtime.client.EPStatement;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

public class EsperScripts {
    private static final long DAY = 86_400_000L;
    // Timers of patterns go on after their statement was undeployed, and every script is a day later.
    private static final int SCRIPTS_OF_A_RUNTIME = 25;
    private static final String[] TYPES = {"E", "F", "G"};

    private static final PrintStream OUT =
            new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
    private final PrintStream out = OUT;
    private final Configuration configuration = new Configuration();
    private EPRuntime runtime;
    private int scripts = 0;
    private long base = 0;
    private int statements = 0;

    private EsperScripts() {
        Map<String, Object> fields = new HashMap<>();
        fields.put("k", String.class);
        fields.put("s", String.class);
        fields.put("a", Long.class);
        fields.put("b", Double.class);
        fields.put("ts", Long.class);
        for (String type : TYPES) {
            configuration.getCommon().addEventType(type, fields);
        }
        configuration.getRuntime().getThreading().setInternalTimerEnabled(false);
        configuration.getRuntime().getExceptionHandling().addClass(Telling.class);
        configuration.getCompiler().getByteCode().setAllowSubscriber(true);
        configuration.getCompiler().getByteCode().setAccessModifiersPublic();
        configuration.getCompiler().getByteCode().setBusModifierEventType(
                com.espertech.esper.common.client.util.EventTypeBusModifier.BUS);
        open();
    }

    private void open() {
        runtime = EPRuntimeProvider.getRuntime("scripts-" + scripts, configuration);
        runtime.initialize();
        runtime.getEventService().advanceTime(0);
    }

    public static void main(String[] arguments) throws Exception {
        // Esper looks classes up by name, and a program that runs from its source has a loader of its own.
        Thread.currentThread().setContextClassLoader(EsperScripts.class.getClassLoader());
        try (InputStream file = arguments.length > 0 ? new FileInputStream(arguments[0]) : System.in) {
            new EsperScripts().run(new BufferedReader(new InputStreamReader(file, StandardCharsets.UTF_8)));
        }
    }

    private void run(BufferedReader in) throws Exception {
        start();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int blank = line.indexOf(' ');
            String word = blank < 0 ? line : line.substring(0, blank);
            String rest = blank < 0 ? "" : line.substring(blank + 1);
            switch (word) {
                case "statement":
                    deploy(rest);
                    break;
                case "time":
                    // Stops at every instant at which something is due, as a clock does.
                    runtime.getEventService().advanceTimeSpan(base + Long.parseLong(rest));
                    break;
                case "event":
                    try {
                        send(rest);
                    } catch (RuntimeException error) {
                        // The event is lost to the statements behind the one that fails.
                        out.println("error 0 " + String.valueOf(error).replace('\n', ' '));
                    }
                    break;
                case "end":
                    runtime.getDeploymentService().undeployAll();
                    out.println("end");
                    out.flush();
                    scripts++;
                    if (scripts % SCRIPTS_OF_A_RUNTIME == 0) {
                        runtime.destroy();
                        open();
                    }
                    start();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
    }

    private void start() {
        long shown = runtime.getEventService().getCurrentTime();
        base = (shown / DAY + 1) * DAY;
        statements = 0;
        runtime.getEventService().advanceTime(base);
    }

    private long now() {
        return runtime.getEventService().getCurrentTime() - base;
    }

    private void deploy(String text) throws Exception {
        int number = statements++;
        try {
            CompilerArguments arguments = new CompilerArguments(configuration);
            arguments.getPath().add(runtime.getRuntimePath());
            EPCompiled compiled = EPCompilerProvider.getCompiler().compile(text, arguments);
            EPDeployment deployment = runtime.getDeploymentService().deploy(compiled);
            for (EPStatement statement : deployment.getStatements()) {
                statement.addListener((added, removed, s, r) -> {
                    out.println("call " + now() + " " + number);
                    rows(number, "new", added);
                    rows(number, "old", removed);
                });
            }
        } catch (EPCompileException | com.espertech.esper.runtime.client.EPDeployException error) {
            out.println("error " + number + " " + String.valueOf(error.getMessage()).replace('\n', ' '));
        }
    }

    private void rows(int number, String kind, EventBean[] rows) {
        if (rows == null) {
            return;
        }
        for (EventBean row : rows) {
            StringBuilder json = new StringBuilder("{");
            for (String name : row.getEventType().getPropertyNames()) {
                if (json.length() > 1) {
                    json.append(',');
                }
                text(json, name);
                json.append(':');
                value(json, row.get(name));
            }
            out.println("row " + now() + " " + number + " " + kind + " " + json.append('}'));
        }
    }

    private void send(String line) {
        String[] parts = line.split(" ");
        Map<String, Object> event = new HashMap<>();
        for (int i = 1; i < parts.length; i++) {
            int equals = parts[i].indexOf('=');
            String name = parts[i].substring(0, equals);
            String value = parts[i].substring(equals + 3);
            switch (parts[i].charAt(equals + 1)) {
                case 's':
                    event.put(name, value);
                    break;
                case 'i':
                    event.put(name, Long.valueOf(value));
                    break;
                default:
                    event.put(name, Double.valueOf(value));
            }
        }
        runtime.getEventService().sendEventMap(event, parts[0]);
    }

    /** Tells of exceptions that Esper would only log: the rows of that event are lost. */
    public static class Telling implements ExceptionHandlerFactory {
        @Override
        public ExceptionHandler getHandler(ExceptionHandlerFactoryContext context) {
            return failure -> OUT.println("error 0 " + String.valueOf(failure.getThrowable()).replace('\n', ' '));
        }
    }

    private static void value(StringBuilder json, Object value) {
        if (value instanceof EventBean) {
            value = ((EventBean) value).getUnderlying();
        }
        if (value instanceof Double && !Double.isFinite((Double) value)) {
            value = null;
        }
        if (value == null || value instanceof Number || value instanceof Boolean) {
            json.append(value);
        } else if (value instanceof Map) {
            json.append('{');
            boolean first = true;
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                if (!first) {
                    json.append(',');
                }
                first = false;
                text(json, String.valueOf(entry.getKey()));
                json.append(':');
                value(json, entry.getValue());
            }
            json.append('}');
        } else if (value.getClass().isArray()) {
            json.append('[');
            for (int i = 0; i < Array.getLength(value); i++) {
                if (i > 0) {
                    json.append(',');
                }
                value(json, Array.get(value, i));
            }
            json.append(']');
        } else {
            text(json, String.valueOf(value));
        }
    }

    private static void text(StringBuilder json, String text) {
        json.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c < ' ') {
                json.append(String.format("\\u%04x", (int) c));
            } else {
                json.append(c);
            }
        }
        json.append('"');
    }
}
