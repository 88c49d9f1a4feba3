import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Members of share groups (KIP-932), as Hosted.java describes it; {@code topics=a,b}. */
public final class ShareMember extends Hosted {
    private final Map<String, String> settings;

    private ShareMember(String id, Map<String, String> settings) {
        super(id);
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        host(ShareMember::new);
    }

    @Override
    long serve() throws InterruptedException {
        Properties properties = new Properties();
        properties.putAll(settings);
        String[] topics = ((String) properties.remove("topics")).split(",");
        long records = 0;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(
                        properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Arrays.asList(topics));
            started();
            while (!isStopped(0)) {
                records += consumer.poll(Duration.ofMillis(100)).count();
            }
        }
        return records;
    }
}
