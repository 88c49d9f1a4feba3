import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * One client under a test's control, in a thread of its own; a JVM hosts any number of them.
 *
 * <p>Commands come on standard input, their words separated by tabs: {@code start ID key=value…},
 * {@code stop ID}, {@code exit}, and those of the kind of client; the end of the input halts the
 * process. Events go to standard output, one JSON object a line: {@code started}, {@code joined},
 * {@code assigned}, {@code revoked}, {@code lost}, {@code error} and {@code closed}. Compiled
 * against the oldest clients, so what only newer ones have is looked up by name.
 */
abstract class Hosted implements Runnable {
    private final String id;
    private final CountDownLatch stopping = new CountDownLatch(1);
    private String lastJoined = "";

    Hosted(String id) {
        this.id = id;
    }

    /** Runs the client until it {@link #isStopped}; how many records it has read. */
    abstract long serve() throws Exception;

    /** A command of this kind of client. */
    void told(String[] words) {
        throw new IllegalArgumentException(String.join("\t", words));
    }

    void stop() {
        stopping.countDown();
    }

    /** Whether it is to stop, known after at most so long. */
    boolean isStopped(long milliseconds) throws InterruptedException {
        return stopping.await(milliseconds, TimeUnit.MILLISECONDS);
    }

    void awaitStop() throws InterruptedException {
        stopping.await();
    }

    /** Obeys the commands; {@code make} gets the id and the settings of each client to start. */
    static void host(BiFunction<String, Map<String, String>, Hosted> make)
            throws IOException, InterruptedException {
        Map<String, Hosted> clients = new ConcurrentHashMap<>();
        Map<String, Thread> threads = new ConcurrentHashMap<>();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("exit")) {
                clients.values().forEach(Hosted::stop);
                for (Thread thread : threads.values()) {
                    thread.join();
                }
                Runtime.getRuntime().halt(0);
            } else if (words[0].equals("start")) {
                Hosted client = make.apply(words[1], settings(words));
                Thread thread = new Thread(client, words[1]);
                clients.put(words[1], client);
                threads.put(words[1], thread);
                thread.start();
            } else if (words[0].equals("stop")) {
                clients.get(words[1]).stop();
            } else {
                clients.get(words[1]).told(words);
            }
        }
        Runtime.getRuntime().halt(3);
    }

    private static Map<String, String> settings(String[] words) {
        Map<String, String> settings = new LinkedHashMap<>();
        for (String word : Arrays.asList(words).subList(2, words.length)) {
            int equals = word.indexOf('=');
            settings.put(word.substring(0, equals), word.substring(equals + 1));
        }
        return settings;
    }

    @Override
    public final void run() {
        try {
            emit("closed", "records", serve());
        } catch (Throwable failure) {
            fail(failure);
        }
    }

    void started() {
        emit("started", "pid", ProcessHandle.current().pid());
    }

    /** Says {@code joined} when one of the fields has changed and there is a generation. */
    void joined(int generation, Object... fields) {
        String now = json(fields) + ",\"generation\":" + generation;
        if (!now.equals(lastJoined) && generation >= 0) {
            lastJoined = now;
            print("joined", now);
        }
    }

    /** Says {@code joined} by the consumer's own account (clients 2.5 and later). */
    void joined(KafkaConsumer<?, ?> consumer) {
        try {
            Object metadata = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
            Object memberId = metadata.getClass().getMethod("memberId").invoke(metadata);
            Object generation = metadata.getClass().getMethod("generationId").invoke(metadata);
            joined((Integer) generation, "member_id", memberId);
        } catch (NoSuchMethodException tooOld) {
            return;
        } catch (ReflectiveOperationException failure) {
            throw new IllegalStateException(failure);
        }
    }

    void fail(Throwable failure) {
        StringBuilder message = new StringBuilder(String.valueOf(failure.getMessage()));
        for (Throwable each = failure.getCause(); each != null; each = each.getCause()) {
            message.append(" <- ").append(each);
        }
        emit("error", "kind", failure.getClass().getSimpleName(), "message", message);
    }

    /** Says an event; the fields are names, each followed by its value. */
    void emit(String event, Object... fields) {
        print(event, json(fields));
    }

    private void print(String event, String fields) {
        String line =
                "{\"t_ms\":" + System.currentTimeMillis() + ",\"id\":" + quote(id)
                        + ",\"event\":" + quote(event) + "," + fields + "}";
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static String json(Object[] fields) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < fields.length; at += 2) {
            text.append(at > 0 ? "," : "").append(quote(fields[at])).append(':');
            text.append(value(fields[at + 1]));
        }
        return text.toString();
    }

    private static String value(Object value) {
        if (value == null || value instanceof Number) {
            return String.valueOf(value);
        }
        return value instanceof Collection ? byTopic((Collection<?>) value) : quote(value);
    }

    private static String byTopic(Collection<?> partitions) {
        Map<String, TreeSet<Integer>> numbers = new TreeMap<>();
        for (Object each : partitions) {
            TopicPartition one = (TopicPartition) each;
            numbers.computeIfAbsent(one.topic(), topic -> new TreeSet<>()).add(one.partition());
        }
        StringBuilder text = new StringBuilder();
        numbers.forEach(
                (topic, of) ->
                        text.append(text.length() > 0 ? "," : "")
                                .append(quote(topic))
                                .append(':')
                                .append(of));
        return "{" + text + "}";
    }

    private static String quote(Object value) {
        StringBuilder text = new StringBuilder("\"");
        for (char each : value.toString().toCharArray()) {
            if (each == '"' || each == '\\') {
                text.append('\\').append(each);
            } else if (each < 0x20 || each > 0x7e) {
                text.append(String.format("\\u%04x", (int) each));
            } else {
                text.append(each);
            }
        }
        return text.append('"').toString();
    }
}
