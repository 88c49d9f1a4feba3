import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.processor.internals.DefaultKafkaClientSupplier;

/**
 * Kafka Streams programs under a test's control, as Hosted.java describes it.
 *
 * <p>{@code start} takes Streams properties, {@code topics=a,b}, and {@code revoke.ms}: how long it
 * takes to give partitions up. Events are those of the main consumer (one stream thread): its
 * listener and its group metadata are what say whether the program stops everything at a rebalance.
 */
public final class StreamsMember extends Hosted {
    private final Map<String, String> settings;
    private long revokeMs;

    private StreamsMember(String id, Map<String, String> settings) {
        super(id);
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        host(StreamsMember::new);
    }

    @Override
    long serve() throws InterruptedException {
        Properties properties = new Properties();
        properties.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
        properties.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
        properties.put("num.stream.threads", "1");
        properties.putAll(settings);
        revokeMs = Long.parseLong((String) properties.getOrDefault("revoke.ms", "0"));
        properties.remove("revoke.ms");
        List<String> topics = Arrays.asList(((String) properties.remove("topics")).split(","));
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topics).foreach((key, value) -> { });
        // A program of the streams protocol has no consumer of its own that could be watched.
        KafkaStreams streams = "streams".equals(settings.get("group.protocol"))
                ? new KafkaStreams(builder.build(), properties)
                : new KafkaStreams(builder.build(), properties, new Supplier());
        streams.setStateListener((now, before) -> emit("state", "state", now));
        started();
        streams.start();
        awaitStop();
        streams.close(Duration.ofSeconds(15));
        return 0;
    }

    private final class Supplier extends DefaultKafkaClientSupplier {
        @Override
        public Consumer<byte[], byte[]> getConsumer(Map<String, Object> config) {
            return new Watched(config);
        }
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
                joined(this);
                return records;
            } catch (WakeupException stopped) {
                throw stopped;
            } catch (RuntimeException failure) {
                fail(failure);
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
            emit("assigned", "partitions", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) {
                pause(revokeMs);
            }
            inner.onPartitionsRevoked(partitions);
            emit("revoked", "partitions", partitions);
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
            emit("lost", "partitions", partitions);
        }
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }
}
