import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * The coordinator's own assignors: one JSON case a line in, one target assignment a line out.
 *
 * <p>Case: assignor, alike (all subscribe to the same names), topics {id: partitions}, ids {name:
 * id}, members [{id, instance, topics [name], target {id: [partition]}}]. The tables are made as the coordinator
 * makes them from its records.
 */
public final class TargetAssignment {
    private TargetAssignment() {}

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(json.writeValueAsString(answer(json, json.readTree(line))));
        }
    }

    private static ObjectNode answer(ObjectMapper json, JsonNode given) {
        Map<Uuid, Integer> counts = new HashMap<>();
        given.get("topics").fields()
                .forEachRemaining(e -> counts.put(Uuid.fromString(e.getKey()), e.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> inverted = new HashMap<>();
        for (JsonNode member : given.get("members")) {
            String id = member.get("id").asText();
            Set<Uuid> topics = new LinkedHashSet<>();
            List<String> names = new ArrayList<>();
            member.get("topics").forEach(topic -> names.add(topic.asText()));
            for (String name : new HashSet<>(names)) {
                topics.add(Uuid.fromString(given.get("ids").get(name).asText()));
            }
            Map<Uuid, Set<Integer>> target = new HashMap<>();
            member.get("target").fields().forEachRemaining(entry -> {
                Uuid topic = Uuid.fromString(entry.getKey());
                List<Integer> partitions = new ArrayList<>();
                entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
                target.put(topic, new HashSet<>(partitions));
                partitions.forEach(
                        p -> inverted.computeIfAbsent(topic, k -> new HashMap<>()).put(p, id));
            });
            JsonNode instance = member.get("instance");
            members.put(
                    id,
                    new MemberSubscriptionAndAssignmentImpl(
                            Optional.empty(),
                            instance.isNull() ? Optional.empty() : Optional.of(instance.asText()),
                            topics,
                            new Assignment(target)));
        }
        ConsumerGroupPartitionAssignor assignor =
                given.get("assignor").asText().equals("range")
                        ? new RangeAssignor()
                        : new UniformAssignor();
        GroupAssignment made =
                assignor.assign(
                        new GroupSpecImpl(
                                Collections.unmodifiableMap(members),
                                given.get("alike").asBoolean()
                                        ? SubscriptionType.HOMOGENEOUS
                                        : SubscriptionType.HETEROGENEOUS,
                                inverted),
                        new SubscribedTopicDescriber() {
                            @Override
                            public int numPartitions(Uuid topic) {
                                return counts.getOrDefault(topic, -1);
                            }

                            @Override
                            public Set<String> racksForPartition(Uuid topic, int partition) {
                                return Set.of();
                            }
                        });
        ObjectNode result = json.createObjectNode();
        made.members().forEach((id, assignment) -> {
            ObjectNode target = result.putObject(id);
            assignment.partitions().forEach((topic, partitions) ->
                    new TreeSet<>(partitions)
                            .forEach(target.withArray(topic.toString())::add));
        });
        return result;
    }
}
