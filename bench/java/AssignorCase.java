import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
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
 * One bench case on Kafka's own assignor: the input is generated here, as bench/assignors_input.py
 * generates it, and the complete result goes into one SHA-256.
 *
 * <p>Arguments: assignor, shape (uniform, general), topics, partitions, members, event (fresh,
 * added, removed). Prints the seconds of the assign call and the digest.
 */
public final class AssignorCase {
    private static final int GENERATION = 7;

    private AssignorCase() {}

    public static void main(String[] args) throws Exception {
        ConsumerPartitionAssignor assignor =
                switch (args[0]) {
                    case "range" -> new RangeAssignor();
                    case "roundrobin" -> new RoundRobinAssignor();
                    case "sticky" -> new StickyAssignor();
                    case "cooperative-sticky" -> new CooperativeStickyAssignor();
                    default -> throw new IllegalArgumentException(args[0]);
                };
        int topics = Integer.parseInt(args[2]);
        int each = Integer.parseInt(args[3]) / topics;
        int before = Integer.parseInt(args[4]);
        boolean fresh = args[5].equals("fresh");
        int from = args[5].equals("removed") ? 1 : 0;
        int to = args[5].equals("added") ? before + 1 : before;

        List<String> names = new ArrayList<>();
        List<PartitionInfo> infos = new ArrayList<>();
        for (int t = 0; t < topics; t++) {
            String name = String.format("topic-%05d", t);
            names.add(name);
            for (int p = 0; p < each; p++) {
                infos.add(new PartitionInfo(name, p, null, new Node[0], new Node[0]));
            }
        }
        Cluster cluster =
                new Cluster(
                        "bench", List.of(), infos, Collections.emptySet(), Collections.emptySet());
        List<List<String>> subscribed = subscriptions(names, args[1].equals("general"), before + 1);
        List<Map<String, List<Integer>>> owned = null;
        if (!fresh) {
            owned = dealt(names, each, subscribed.subList(0, before));
        }
        Map<String, Subscription> group = new HashMap<>();
        for (int m = from; m < to; m++) {
            Map<String, List<Integer>> mine = fresh || m >= before ? null : owned.get(m);
            group.put(
                    String.format("member-%05d", m),
                    subscription(assignor, subscribed.get(m), mine));
        }
        owned = null;

        long begin = System.nanoTime();
        Map<String, Assignment> result =
                assignor.assign(cluster, new GroupSubscription(group)).groupAssignment();
        double seconds = (System.nanoTime() - begin) / 1e9;
        System.out.println(seconds + " " + digest(result));
    }

    /** For each member the topics it subscribes to: all, or a half picked by a fixed sequence. */
    private static List<List<String>> subscriptions(
            List<String> names, boolean general, int members) {
        List<List<String>> subscribed = new ArrayList<>();
        long state = 1;
        for (int m = 0; m < members; m++) {
            List<String> mine = new ArrayList<>();
            for (String name : names) {
                state = (state * 1103515245L + 12345L) % 2147483648L;
                if (!general || (state >> 16) % 2 == 1) {
                    mine.add(name);
                }
            }
            subscribed.add(mine);
        }
        return subscribed;
    }

    /** What each member owned: partitions go around the subscribers of their topic. */
    private static List<Map<String, List<Integer>>> dealt(
            List<String> names, int each, List<List<String>> subscribed) {
        List<Map<String, List<Integer>>> owned = new ArrayList<>();
        Map<String, List<Integer>> takers = new LinkedHashMap<>();
        names.forEach(name -> takers.put(name, new ArrayList<>()));
        for (int m = 0; m < subscribed.size(); m++) {
            owned.add(new LinkedHashMap<>());
            for (String name : subscribed.get(m)) {
                takers.get(name).add(m);
            }
        }
        int turn = 0;
        for (String name : names) {
            List<Integer> members = takers.get(name);
            for (int p = 0; p < each; p++, turn++) {
                owned.get(members.get(turn % members.size()))
                        .computeIfAbsent(name, any -> new ArrayList<>())
                        .add(p);
            }
        }
        return owned;
    }

    private static Subscription subscription(
            ConsumerPartitionAssignor assignor,
            List<String> topics,
            Map<String, List<Integer>> owned) {
        if (assignor instanceof StickyAssignor) {
            ByteBuffer data = owned == null ? null : previous(owned);
            return new Subscription(topics, data, List.of(), -1, Optional.empty());
        }
        if (owned == null) {
            return new Subscription(topics, null, List.of(), -1, Optional.empty());
        }
        List<TopicPartition> partitions = new ArrayList<>();
        owned.forEach((name, ps) -> ps.forEach(p -> partitions.add(new TopicPartition(name, p))));
        return new Subscription(topics, null, partitions, GENERATION, Optional.empty());
    }

    /** The user data of a `sticky` member: previous partitions by topic, and the generation. */
    private static ByteBuffer previous(Map<String, List<Integer>> owned) {
        int size = 8;
        for (Map.Entry<String, List<Integer>> entry : owned.entrySet()) {
            size += 2 + entry.getKey().length() + 4 + 4 * entry.getValue().size();
        }
        ByteBuffer data = ByteBuffer.allocate(size);
        data.putInt(owned.size());
        owned.forEach(
                (name, ps) -> {
                    byte[] bytes = name.getBytes(StandardCharsets.UTF_8);
                    data.putShort((short) bytes.length).put(bytes).putInt(ps.size());
                    ps.forEach(data::putInt);
                });
        data.putInt(GENERATION).flip();
        return data;
    }

    /** Members by name, each with its partitions in the order returned. */
    private static String digest(Map<String, Assignment> result) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        StringBuilder line = new StringBuilder();
        for (Map.Entry<String, Assignment> entry : new TreeMap<>(result).entrySet()) {
            line.setLength(0);
            line.append(entry.getKey());
            for (TopicPartition tp : entry.getValue().partitions()) {
                line.append(' ').append(tp.topic()).append(' ').append(tp.partition());
            }
            line.append('\n');
            sha.update(line.toString().getBytes(StandardCharsets.UTF_8));
        }
        return HexFormat.of().formatHex(sha.digest());
    }
}
