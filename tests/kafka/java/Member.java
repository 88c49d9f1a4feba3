import java.lang.reflect.Field;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Consumers under a test's control, as Hosted.java describes it.
 *
 * <p>{@code start} takes consumer properties, {@code topics=a,b} and {@code fails=assigned} (the
 * callback that throws: revoked, assigned or lost). More commands: {@code rebalance ID}, {@code hold
 * ID MS} (no poll for so long), {@code crash ID} (it ends without a LeaveGroup, as a member does
 * that is killed).
 */
public final class Member extends Hosted implements ConsumerRebalanceListener {
    private final Map<String, String> settings;
    private final String fails;
    private volatile KafkaConsumer<byte[], byte[]> consumer;
    private volatile boolean rebalance;
    private volatile long holdMs;
    private volatile boolean crashing;

    private Member(String id, Map<String, String> settings) {
        super(id);
        this.settings = settings;
        this.fails = settings.remove("fails");
    }

    public static void main(String[] args) throws Exception {
        host(Member::new);
    }

    @Override
    void told(String[] words) {
        if (words[0].equals("rebalance")) {
            rebalance = true;
        } else if (words[0].equals("hold")) {
            holdMs = Long.parseLong(words[2]);
        } else if (words[0].equals("crash")) {
            crashing = true;
            stop();
        } else {
            super.told(words);
        }
    }

    @Override
    void stop() {
        super.stop();
        KafkaConsumer<byte[], byte[]> current = consumer;
        if (current != null) {
            current.wakeup();
        }
    }

    @Override
    long serve() throws Exception {
        Properties properties = new Properties();
        properties.put("key.deserializer", ByteArrayDeserializer.class.getName());
        properties.put("value.deserializer", ByteArrayDeserializer.class.getName());
        properties.putAll(settings);
        Object topics = properties.remove("topics");
        long records = 0;
        try (KafkaConsumer<byte[], byte[]> current = new KafkaConsumer<>(properties)) {
            consumer = current;
            started();
            current.subscribe(Arrays.asList(((String) topics).split(",")), this);
            while (!isStopped(0)) {
                try {
                    records += current.poll(Duration.ofMillis(100)).count();
                } catch (WakeupException stopped) {
                    continue;
                }
                joined(current);
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
            if (crashing) {
                stayInGroup(current);
            }
        }
        return records;
    }

    /**
     * Makes close() send no LeaveGroup: what the internal setting {@code
     * internal.leave.group.on.close} does, which is read when a consumer is built. Clients without
     * that field are closed so (KIP-1092).
     */
    private static void stayInGroup(Object consumer) throws ReflectiveOperationException {
        Object holder = consumer;
        for (String name : new String[] {"delegate", "coordinator", "rebalanceConfig"}) {
            Field field = fieldOf(holder.getClass(), name);
            holder = field == null ? holder : field.get(holder);
        }
        Field leaves = fieldOf(holder.getClass(), "leaveGroupOnClose");
        if (leaves != null) {
            leaves.setBoolean(holder, false);
            return;
        }
        String named = "org.apache.kafka.clients.consumer.CloseOptions";
        Class<?> options = Class.forName(named);
        for (Object each : Class.forName(named + "$GroupMembershipOperation").getEnumConstants()) {
            if (each.toString().equals("REMAIN_IN_GROUP")) {
                Object stay = options.getMethod("groupMembershipOperation", each.getClass())
                        .invoke(null, each);
                consumer.getClass().getMethod("close", options).invoke(consumer, stay);
            }
        }
    }

    /** The field of the class or of one above it; null where there is none. */
    private static Field fieldOf(Class<?> kind, String name) {
        for (Class<?> each = kind; each != null; each = each.getSuperclass()) {
            for (Field field : each.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field;
                }
            }
        }
        return null;
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell("assigned", partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        tell("revoked", partitions);
    }

    // No @Override: the interface of the oldest client has no such method.
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        tell("lost", partitions);
    }

    private void tell(String callback, Collection<TopicPartition> partitions) {
        emit(callback, "partitions", partitions);
        if (callback.equals(fails) && !partitions.isEmpty()) {
            throw new IllegalStateException("callback " + callback);
        }
    }
}
