import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors as a filter: cases come in as lines of tab-separated fields, an assignment
 * goes out for each. Names hold no tab, comma or colon; `-` is null.
 *
 * <pre>
 * broker  ID RACK
 * topic   NAME REPLICAS,OF,A,PARTITION ...       (`-`: not known)
 * member  ID INSTANCE RACK GENERATION USER-DATA(base64) TOPIC,TOPIC TOPIC:PARTITION,...
 * assign  ASSIGNOR
 * </pre>
 *
 * The answer is `ID TOPIC:PARTITION,...` for each member, then `done`; or `throws CLASS`.
 */
public final class Assign {
    private final Map<Integer, Node> brokers = new HashMap<>();
    private final List<PartitionInfo> partitions = new ArrayList<>();
    private final Map<String, Subscription> members = new HashMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Assign now = new Assign();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "broker" -> now.broker(words);
                case "topic" -> now.topic(words);
                case "member" -> now.member(words);
                case "assign" -> {
                    now.answer(words[1], out);
                    out.flush();
                    now = new Assign();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private void broker(String[] words) {
        int id = Integer.parseInt(words[1]);
        brokers.put(id, new Node(id, "localhost", 9092, orNull(words[2])));
    }

    private void topic(String[] words) {
        for (int p = 0; p < words.length - 2; p++) {
            List<Node> replicas = new ArrayList<>();
            for (String id : list(words[p + 2])) {
                replicas.add(brokers.get(Integer.parseInt(id)));
            }
            Node[] nodes = replicas.toArray(new Node[0]);
            partitions.add(
                    new PartitionInfo(words[1], p, nodes.length > 0 ? nodes[0] : null, nodes, nodes));
        }
    }

    private void member(String[] words) {
        ByteBuffer data =
                words[5].equals("-") ? null : ByteBuffer.wrap(Base64.getDecoder().decode(words[5]));
        List<TopicPartition> owned = new ArrayList<>();
        for (String word : list(words[7])) {
            int colon = word.lastIndexOf(':');
            int partition = Integer.parseInt(word.substring(colon + 1));
            owned.add(new TopicPartition(word.substring(0, colon), partition));
        }
        Subscription subscription =
                new Subscription(
                        list(words[6]),
                        data,
                        owned,
                        Integer.parseInt(words[4]),
                        Optional.ofNullable(orNull(words[3])));
        subscription.setGroupInstanceId(Optional.ofNullable(orNull(words[2])));
        members.put(words[1], subscription);
    }

    private void answer(String name, PrintStream out) {
        ConsumerPartitionAssignor assignor =
                switch (name) {
                    case "range" -> new RangeAssignor();
                    case "roundrobin" -> new RoundRobinAssignor();
                    case "sticky" -> new StickyAssignor();
                    case "cooperative-sticky" -> new CooperativeStickyAssignor();
                    default -> throw new IllegalArgumentException(name);
                };
        Cluster cluster = new Cluster("c", brokers.values(), partitions, Set.of(), Set.of());
        try {
            Map<String, Assignment> result =
                    assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
            for (Map.Entry<String, Assignment> entry : result.entrySet()) {
                List<String> owned = new ArrayList<>();
                for (TopicPartition tp : entry.getValue().partitions()) {
                    owned.add(tp.topic() + ":" + tp.partition());
                }
                out.println(entry.getKey() + "\t" + String.join(",", owned));
            }
            out.println("done");
        } catch (RuntimeException error) {
            out.println("throws " + error.getClass().getSimpleName());
        }
    }

    private static List<String> list(String word) {
        return word.isEmpty() || word.equals("-") ? List.of() : List.of(word.split(","));
    }

    private static String orNull(String word) {
        return word.equals("-") ? null : word;
    }
}
