import java.lang.reflect.Field;
import java.util.Map;
import org.apache.kafka.connect.cli.ConnectDistributed;
import org.apache.kafka.connect.runtime.Connect;
import org.apache.kafka.connect.runtime.distributed.WorkerCoordinator;
import org.apache.kafka.connect.runtime.distributed.WorkerGroupMember;

/**
 * Connect workers (distributed mode) under a test's control, as Hosted.java describes it.
 *
 * <p>{@code start} takes worker properties. A worker says {@code started} with its REST address, and
 * {@code joined} with its member id, generation and the version of the protocol it follows (0
 * eager, 1 compatible, 2 sessioned) when one changes.
 */
public final class ConnectWorker extends Hosted {
    private final Map<String, String> settings;

    private ConnectWorker(String id, Map<String, String> settings) {
        super(id);
        this.settings = settings;
    }

    public static void main(String[] args) throws Exception {
        host(ConnectWorker::new);
    }

    @Override
    long serve() throws Exception {
        // Raw: the class got a type parameter between the versions that this runs on.
        Connect connect = new ConnectDistributed().startConnect(settings);
        emit("started", "url", connect.rest().advertisedUrl());
        WorkerGroupMember member = (WorkerGroupMember) in(in(connect, "herder"), "member");
        WorkerCoordinator coordinator = (WorkerCoordinator) in(member, "coordinator");
        do {
            joined(
                    coordinator.lastCompletedGenerationId(),
                    "member_id", member.memberId(),
                    "protocol", member.currentProtocolVersion());
        } while (!isStopped(50));
        connect.stop();
        connect.awaitStop();
        return 0;
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
}
