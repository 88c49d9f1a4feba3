import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers under a test's control: commands on standard input, JSON events on standard output.
 *
 * <p>Commands, their words separated by tabs: {@code start ID key=value…} (consumer properties, and
 * {@code topics=a,b} or {@code pattern=REGEX}), {@code stop ID}, {@code rebalance ID}, {@code hold
 * ID MS} (no poll for so long) and {@code exit}; the end of the input halts the process. Compiled
 * against the oldest client, so what only newer ones have (group metadata, enforceRebalance, lost
 * partitions) is looked up by name.
 */
public final class Member implements Runnable, ConsumerRebalanceListener {
    private final String id;
    private final Map<String, String> settings;
    private volatile KafkaConsumer<byte[], byte[]> consumer;
    private volatile boolean stopping;
    private volatile boolean rebalance;
    private volatile long holdMs;
    private String joined = "";
    private long records;

    private Member(String id, Map<String, String> settings) {
        this.id = id;
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        Map<String, Member> members = new ConcurrentHashMap<>();
        Map<String, Thread> threads = new ConcurrentHashMap<>();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("exit")) {
                members.values().forEach(Member::stop);
                for (Thread thread : threads.values()) {
                    thread.join();
                }
                System.exit(0);
            } else if (words[0].equals("start")) {
                Map<String, String> settings = new LinkedHashMap<>();
                for (String word : Arrays.asList(words).subList(2, words.length)) {
                    int equals = word.indexOf('=');
                    settings.put(word.substring(0, equals), word.substring(equals + 1));
                }
                Member member = new Member(words[1], settings);
                Thread thread = new Thread(member, words[1]);
                members.put(words[1], member);
                threads.put(words[1], thread);
                thread.start();
            } else if (words[0].equals("stop")) {
                members.get(words[1]).stop();
            } else if (words[0].equals("rebalance")) {
                members.get(words[1]).rebalance = true;
            } else if (words[0].equals("hold")) {
                members.get(words[1]).holdMs = Long.parseLong(words[2]);
            } else {
                throw new IllegalArgumentException(line);
            }
        }
        Runtime.getRuntime().halt(3);
    }

    private void stop() {
        stopping = true;
        KafkaConsumer<byte[], byte[]> current = consumer;
        if (current != null) {
            current.wakeup();
        }
    }

    @Override
    public void run() {
        try {
            consume();
            emit("closed", "\"records\":" + records);
        } catch (Throwable failure) {
            StringBuilder causes = new StringBuilder();
            for (Throwable each = failure.getCause(); each != null; each = each.getCause()) {
                causes.append(" <- ").append(each);
            }
            emit(
                    "error",
                    "\"kind\":" + quote(failure.getClass().getSimpleName())
                            + ",\"message\":" + quote(failure.getMessage() + causes));
        }
    }

    private void consume() throws Exception {
        Properties properties = new Properties();
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.putAll(settings);
        Object topics = properties.remove("topics");
        Object pattern = properties.remove("pattern");
        try (KafkaConsumer<byte[], byte[]> current = new KafkaConsumer<>(properties)) {
            consumer = current;
            emit("started", "\"pid\":" + ProcessHandle.current().pid());
            if (pattern != null) {
                current.subscribe(Pattern.compile((String) pattern), this);
            } else {
                current.subscribe(Arrays.asList(((String) topics).split(",")), this);
            }
            while (!stopping) {
                try {
                    records += current.poll(Duration.ofMillis(100)).count();
                } catch (WakeupException stopped) {
                    continue;
                }
                tellGeneration();
                if (rebalance) {
                    rebalance = false;
                    KafkaConsumer.class.getMethod("enforceRebalance").invoke(current);
                }
                if (holdMs > 0) {
                    long pause = holdMs;
                    holdMs = 0;
                    Thread.sleep(pause);
                }
            }
        }
    }

    /** Says `joined` when the client's own generation or member id changed (clients 2.5 and later). */
    private void tellGeneration() throws Exception {
        Object metadata;
        try {
            metadata = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
        } catch (NoSuchMethodException tooOld) {
            return;
        }
        Object memberId = metadata.getClass().getMethod("memberId").invoke(metadata);
        Object generation = metadata.getClass().getMethod("generationId").invoke(metadata);
        String now = "\"member_id\":" + quote(memberId) + ",\"generation\":" + generation;
        if (!now.equals(joined) && (Integer) generation >= 0) {
            joined = now;
            emit("joined", now);
        }
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        emit("assigned", "\"partitions\":" + json(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        emit("revoked", "\"partitions\":" + json(partitions));
    }

    // No @Override: the interface of the oldest client has no such method.
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        emit("lost", "\"partitions\":" + json(partitions));
    }

    private void emit(String event, String fields) {
        String line =
                "{\"t_ms\":" + System.currentTimeMillis() + ",\"id\":" + quote(id)
                        + ",\"event\":\"" + event + "\"," + fields + "}";
        synchronized (System.out) {
            System.out.println(line);
            System.out.flush();
        }
    }

    private static String json(Collection<TopicPartition> partitions) {
        Map<String, TreeSet<Integer>> byTopic = new TreeMap<>();
        for (TopicPartition each : partitions) {
            byTopic.computeIfAbsent(each.topic(), topic -> new TreeSet<>()).add(each.partition());
        }
        StringBuilder text = new StringBuilder("{");
        byTopic.forEach(
                (topic, numbers) ->
                        text.append(text.length() > 1 ? "," : "")
                                .append(quote(topic))
                                .append(':')
                                .append(numbers));
        return text.append('}').toString();
    }

    private static String quote(Object value) {
        if (value == null) {
            return "null";
        }
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
