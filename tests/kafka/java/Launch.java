import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * One JVM start for a broker: formats the storage when asked, then runs Kafka's own main.
 *
 * <p>Arguments: the properties file, then (only on the first start) the arguments of StorageTool
 * after `format --config FILE`. The process halts when its standard input ends, so that a broker
 * never outlives the test run that owns it.
 */
public final class Launch {
    private Launch() {}

    public static void main(String[] args) throws Exception {
        if (args.length > 1) {
            List<String> format = new ArrayList<>(List.of("format", "--config", args[0]));
            format.addAll(Arrays.asList(args).subList(1, args.length));
            int code =
                    kafka.tools.StorageTool.execute(
                            format.toArray(new String[0]), new PrintStream(System.out, true));
            if (code != 0) {
                System.exit(code);
            }
        }
        Thread watch =
                new Thread(
                        () -> {
                            try {
                                while (System.in.read() != -1) {
                                    continue;
                                }
                            } catch (java.io.IOException ended) {
                                System.err.println("standard input: " + ended);
                            }
                            Runtime.getRuntime().halt(3);
                        },
                        "stdin-watch");
        watch.setDaemon(true);
        watch.start();
        kafka.Kafka.main(new String[] {args[0]});
    }
}
