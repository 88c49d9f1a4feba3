import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.connect.runtime.distributed.WorkerCoordinator;
import org.apache.kafka.connect.runtime.distributed.WorkerGroupMember;

/**
 * Connect workers (distributed mode) under a test's control, in the words of Member.java.
 *
 * <p>Commands: {@code start ID key=value…} (worker properties), {@code stop ID}, {@code exit}. A
 * worker says {@code started} with its REST address, and {@code joined} with its member id, generation
 * and the version of the protocol it follows (0 eager, 1 compatible, 2 sessioned) when one changes.
 */
public final class ConnectWorker implements Runnable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private final String id;
    private final Map<String, String> settings;
    private volatile boolean stopping;

    private ConnectWorker(String id, Map<String, String> settings) {
        this.id = id;
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        Map<String, ConnectWorker> workers = new ConcurrentHashMap<>();
        Map<String, Thread> threads = new ConcurrentHashMap<>();
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t");
            if (words[0].equals("exit")) {
                workers.values().forEach(worker -> worker.stopping = true);
                for (Thread thread : threads.values()) {
                    thread.join(15000);
                }
                Runtime.getRuntime().halt(0);
            } else if (words[0].equals("start")) {
                Map<String, String> settings = new LinkedHashMap<>();
                for (String word : Arrays.asList(words).subList(2, words.length)) {
                    int equals = word.indexOf('=');
                    settings.put(word.substring(0, equals), word.substring(equals + 1));
                }
                ConnectWorker worker = new ConnectWorker(words[1], settings);
                Thread thread = new Thread(worker, words[1]);
                workers.put(words[1], worker);
                threads.put(words[1], thread);
                thread.start();
            } else if (words[0].equals("stop")) {
                workers.get(words[1]).stopping = true;
            } else {
                throw new IllegalArgumentException(line);
            }
        }
        Runtime.getRuntime().halt(3);
    }

    @Override
    public void run() {
        try {
            // Raw: the class got a type parameter between the versions that this runs on.
            Connect connect = new ConnectDistributed().startConnect(settings);
            emit(JSON.createObjectNode().put("url", connect.rest().advertisedUrl().toString()), "started");
            WorkerGroupMember member = (WorkerGroupMember) in(in(connect, "herder"), "member");
            WorkerCoordinator coordinator = (WorkerCoordinator) in(member, "coordinator");
            ObjectNode before = null;
            while (!stopping) {
                ObjectNode now = JSON.createObjectNode();
                now.put("member_id", member.memberId());
                now.put("generation", coordinator.lastCompletedGenerationId());
                now.put("protocol", member.currentProtocolVersion());
                if (!now.equals(before) && now.get("generation").asInt() >= 0) {
                    before = now;
                    emit(now.deepCopy(), "joined");
                }
                Thread.sleep(50);
            }
            connect.stop();
            connect.awaitStop();
            emit(JSON.createObjectNode(), "closed");
        } catch (Throwable failure) {
            StringBuilder causes = new StringBuilder(String.valueOf(failure.getMessage()));
            for (Throwable each = failure.getCause(); each != null; each = each.getCause()) {
                causes.append(" <- ").append(each);
            }
            ObjectNode error = JSON.createObjectNode();
            error.put("kind", failure.getClass().getSimpleName()).put("message", causes.toString());
            emit(error, "error");
        }
    }

    private static Object in(Object owner, String name) throws ReflectiveOperationException {
        for (Class<?> kind = owner.getClass(); kind != null; kind = kind.getSuperclass()) {
            for (Field field : kind.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    return field.get(owner);
                }
            }
        }
        throw new NoSuchFieldException(name + " of " + owner.getClass());
    }

    private void emit(ObjectNode fields, String event) {
        fields.put("t_ms", System.currentTimeMillis()).put("id", id).put("event", event);
        synchronized (System.out) {
            System.out.println(fields);
            System.out.flush();
        }
    }
}
