import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.message.JoinGroupResponseData.JoinGroupResponseMember;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.runtime.distributed.ConnectAssignor;
import org.apache.kafka.connect.runtime.distributed.EagerAssignor;
import org.apache.kafka.connect.runtime.distributed.IncrementalCooperativeAssignor;
import org.apache.kafka.connect.runtime.distributed.WorkerCoordinator;
import org.apache.kafka.connect.storage.ClusterConfigState;
import sun.misc.Unsafe;

/**
 * Kafka Connect's own assignors as a filter: rebalances come in as lines of tab-separated fields,
 * each worker's assignment goes out as bytes.
 *
 * <pre>
 * forget                                       (all leaders)
 * config  CONNECTOR:TASKS ...
 * member  ID METADATA(base64)                  (in the coordinator's order)
 * assign  LEADER PROTOCOL MAX-DELAY LAST-GENERATION GENERATION NOW   (times in ms)
 * </pre>
 *
 * A leader keeps its memory from one `assign` to the next. The answer is `ID BYTES(base64)` for each
 * member, then `done`; or `throws CLASS`.
 */
public final class ConnectAssign {
    private static final Map<String, ConnectAssignor> LEADERS = new HashMap<>();
    private static long now;
    private Map<String, Integer> config = Map.of();
    private final List<JoinGroupResponseMember> members = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        ConnectAssign round = new ConnectAssign();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "forget" -> LEADERS.clear();
                case "config" -> round.config(words);
                case "member" ->
                        round.members.add(
                                new JoinGroupResponseMember()
                                        .setMemberId(words[1])
                                        .setMetadata(Base64.getDecoder().decode(words[2])));
                case "assign" -> {
                    round.answer(words, out);
                    out.flush();
                    round = new ConnectAssign();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private void config(String[] words) {
        config = new HashMap<>();
        for (int n = 1; n < words.length; n++) {
            int colon = words[n].lastIndexOf(':');
            config.put(words[n].substring(0, colon), Integer.parseInt(words[n].substring(colon + 1)));
        }
    }

    private void answer(String[] words, PrintStream out) throws Exception {
        String leader = words[1];
        int maxDelay = Integer.parseInt(words[3]);
        Seen seen = (Seen) unsafe().allocateInstance(Seen.class);
        seen.state = state(config);
        seen.leader = leader;
        seen.last = Integer.parseInt(words[4]);
        seen.generation = Integer.parseInt(words[5]);
        now = Long.parseLong(words[6]);
        ConnectAssignor assignor =
                words[2].equals("default")
                        ? new EagerAssignor(new LogContext())
                        : LEADERS.computeIfAbsent(
                                leader,
                                id ->
                                        new IncrementalCooperativeAssignor(
                                                new LogContext(), clock(), maxDelay));
        try {
            Map<String, ByteBuffer> made =
                    assignor.performAssignment(leader, words[2], members, seen);
            for (Map.Entry<String, ByteBuffer> entry : made.entrySet()) {
                byte[] bytes = new byte[entry.getValue().remaining()];
                entry.getValue().get(bytes);
                out.println(entry.getKey() + "\t" + Base64.getEncoder().encodeToString(bytes));
            }
            out.println("done");
        } catch (RuntimeException error) {
            out.println("throws " + error);
        }
    }

    /** What a leader asks its coordinator; made without a constructor, which would want a broker. */
    private static final class Seen extends WorkerCoordinator {
        private ClusterConfigState state;
        private String leader;
        private int last;
        private int generation;

        private Seen() {
            super(null, null, null, null, null, null, null, null, null, null, 0);
        }

        @Override
        public ClusterConfigState configSnapshot() {
            return state;
        }

        @Override
        public int lastCompletedGenerationId() {
            return last;
        }

        @Override
        public int generationId() {
            return generation;
        }

        @Override
        public String memberId() {
            return leader;
        }

        @Override
        public void leaderState(LeaderState update) {}
    }

    private static Unsafe unsafe() throws ReflectiveOperationException {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return (Unsafe) field.get(null);
    }

    private static Time clock() {
        return (Time)
                Proxy.newProxyInstance(
                        Time.class.getClassLoader(),
                        new Class<?>[] {Time.class},
                        (proxy, method, arguments) -> {
                            if (method.getName().equals("milliseconds")) {
                                return now;
                            }
                            throw new UnsupportedOperationException(method.getName());
                        });
    }

    private static ClusterConfigState state(Map<String, Integer> config) {
        Map<String, Map<String, String>> connectors = new HashMap<>();
        config.keySet().forEach(name -> connectors.put(name, Map.of()));
        return new ClusterConfigState(
                1, null, config, connectors, Map.of(), Map.of(), Map.of(), Map.of(), Map.of(),
                Set.of(), Set.of());
    }
}
