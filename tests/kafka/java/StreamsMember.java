import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier;

/**
 * Kafka Streams programs under a test's control, in the words of Member.java.
 *
 * <p>Commands: {@code start ID key=value…} (Streams properties, {@code topics=a,b}, and {@code
 * revoke.ms}: how long it takes to give partitions up), {@code stop ID}, {@code exit}. Events are those of the main consumer (one stream thread): its listener
 * and its group metadata are what say whether the program stops everything at a rebalance. Compiled
 * against the oldest version; what only newer ones have is looked up by name.
 */
public final class StreamsMember extends DefaultKafkaClientSupplier {
    private final String id;
    private final Map<String, String> settings;
    private KafkaStreams streams;
    private String joined = "";
    private long revokeMs;

    private StreamsMember(String id, Map<String, String> settings) {
        this.id = id;
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        Map<String, StreamsMember> members = new ConcurrentHashMap<>();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("exit")) {
                members.values().parallelStream().forEach(StreamsMember::stop);
                System.exit(0);
            } else if (words[0].equals("start")) {
                Map<String, String> settings = new LinkedHashMap<>();
                for (String word : Arrays.asList(words).subList(2, words.length)) {
                    int equals = word.indexOf('=');
                    settings.put(word.substring(0, equals), word.substring(equals + 1));
                }
                StreamsMember member = new StreamsMember(words[1], settings);
                members.put(words[1], member);
                member.start();
            } else if (words[0].equals("stop")) {
                StreamsMember member = members.remove(words[1]);
                if (member != null) {
                    new Thread(member::stop).start();
                }
            } else {
                throw new IllegalArgumentException(line);
            }
        }
        Runtime.getRuntime().halt(3);
    }

    private void start() {
        Properties properties = new Properties();
        properties.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
        properties.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
        properties.put("num.stream.threads", "1");
        properties.putAll(settings);
        revokeMs = Long.parseLong((String) properties.getOrDefault("revoke.ms", "0"));
        properties.remove("revoke.ms");
        List<String> topics = Arrays.asList(((String) properties.remove("topics")).split(","));
        try {
            StreamsBuilder builder = new StreamsBuilder();
            builder.stream(topics).foreach((key, value) -> { });
            streams = new KafkaStreams(builder.build(), properties, this);
            streams.setStateListener(
                    (now, before) -> emit("state", "\"state\":" + quote(now)));
            emit("started", "\"pid\":" + ProcessHandle.current().pid());
            streams.start();
        } catch (RuntimeException failure) {
            tell(failure);
        }
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    private void stop() {
        if (streams != null) {
            streams.close(Duration.ofSeconds(15));
        }
        emit("closed", "\"records\":0");
    }

    @Override
    public Consumer<byte[], byte[]> getConsumer(Map<String, Object> config) {
        return new Watched(config);
    }

    /** The main consumer: Streams subscribes with its own listener, which is wrapped here. */
    private final class Watched extends KafkaConsumer<byte[], byte[]> {
        Watched(Map<String, Object> config) {
            super(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        }

        @Override
        public void subscribe(Collection<String> topics, ConsumerRebalanceListener listener) {
            super.subscribe(topics, new Listener(listener));
        }

        // Versions before 2.4 subscribe by a pattern, also to plain names.
        @Override
        public void subscribe(Pattern topics, ConsumerRebalanceListener listener) {
            super.subscribe(topics, new Listener(listener));
        }

        @Override
        public ConsumerRecords<byte[], byte[]> poll(Duration timeout) {
            try {
                ConsumerRecords<byte[], byte[]> records = super.poll(timeout);
                tellGeneration(this);
                return records;
            } catch (RuntimeException failure) {
                tell(failure);
                throw failure;
            }
        }
    }

    private final class Listener implements ConsumerRebalanceListener {
        private final ConsumerRebalanceListener inner;

        Listener(ConsumerRebalanceListener inner) {
            this.inner = inner;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            inner.onPartitionsAssigned(partitions);
            emit("assigned", "\"partitions\":" + json(partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) {
                pause(revokeMs);
            }
            inner.onPartitionsRevoked(partitions);
            emit("revoked", "\"partitions\":" + json(partitions));
        }

        // No @Override: the interface of the oldest client has no such method.
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            try {
                ConsumerRebalanceListener.class
                        .getMethod("onPartitionsLost", Collection.class)
                        .invoke(inner, partitions);
            } catch (ReflectiveOperationException failure) {
                throw new IllegalStateException(failure);
            }
            emit("lost", "\"partitions\":" + json(partitions));
        }
    }

    /** Says `joined` when the client's own generation or member id changed (clients 2.5 and later). */
    private void tellGeneration(KafkaConsumer<?, ?> consumer) {
        try {
            Object metadata = KafkaConsumer.class.getMethod("groupMetadata").invoke(consumer);
            Object memberId = metadata.getClass().getMethod("memberId").invoke(metadata);
            Object generation = metadata.getClass().getMethod("generationId").invoke(metadata);
            String now = "\"member_id\":" + quote(memberId) + ",\"generation\":" + generation;
            if (!now.equals(joined) && (Integer) generation >= 0) {
                joined = now;
                emit("joined", now);
            }
        } catch (NoSuchMethodException tooOld) {
            return;
        } catch (IllegalAccessException | InvocationTargetException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private void tell(Throwable failure) {
        StringBuilder causes = new StringBuilder();
        for (Throwable each = failure.getCause(); each != null; each = each.getCause()) {
            causes.append(" <- ").append(each);
        }
        if (failure instanceof org.apache.kafka.common.errors.WakeupException) {
            return;
        }
        emit(
                "error",
                "\"kind\":" + quote(failure.getClass().getSimpleName())
                        + ",\"message\":" + quote(failure.getMessage() + causes));
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
        StringBuilder text = new StringBuilder("\"");
        for (char each : String.valueOf(value).toCharArray()) {
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
