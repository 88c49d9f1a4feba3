import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import scala.collection.immutable.HashMap$;

/**
 * Prints ties.tsv: names with one vote each, then the one that each coordinator's table gives.
 *
 * javac -cp scala-library-2.13.15.jar Ties.java
 * java -Dfile.encoding=UTF-8 -cp scala-library-2.13.15.jar:. Ties > ties.tsv
 */
public class Ties {
    private static final String[] NAMES = {
        "range", "roundrobin", "sticky", "cooperative-sticky", "RoundRobinAssigner", "stream",
        "uniform", "com.acme.Assignor", "lowest-lag", "zone-aware", "Aa", "BB", "AaAa", "BBBB"};

    public static void main(String[] args) {
        for (String one : NAMES) {
            for (String other : NAMES) {
                if (one.compareTo(other) < 0) print(new LinkedHashSet<>(List.of(one, other)));
            }
        }
        Random random = new Random(429);
        for (int row = 0; row < 250; row++) {
            int size = 2 + random.nextInt(row < 150 ? 4 : 28);
            Set<String> names = new LinkedHashSet<>();
            while (names.size() < size) {
                StringBuilder name = new StringBuilder();
                for (int left = 1 + random.nextInt(12); left > 0; left--) {
                    boolean wide = random.nextInt(40) == 0;
                    name.append((char) (wide ? 0x4e00 + random.nextInt(500) : 'a' + random.nextInt(26)));
                }
                names.add(name.toString());
            }
            print(names);
        }
    }

    private static void print(Set<String> names) {
        Map<String, Integer> votes = new HashMap<>();
        var scala = HashMap$.MODULE$.<String, Integer>empty();
        for (String name : names) {
            votes.put(name, 1);
            scala = (scala.collection.immutable.HashMap<String, Integer>) scala.updated(name, 1);
        }
        String java = votes.entrySet().stream()
            .max(Comparator.comparingInt(Map.Entry::getValue)).map(Map.Entry::getKey).get();
        System.out.println(String.join(",", names) + "\t" + java + "\t" + scala.iterator().next()._1());
    }
}
