package com.example;

import java.util.Collections;
import java.util.List;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;

/**
 * Assignors that are not Kafka's own, as an application would bring them: EAGER alone (which is what
 * supportedProtocols() says unless it is overridden), both protocols, and COOPERATIVE alone.
 */
public class ShelfAssignor extends RangeAssignor {
    @Override
    public String name() {
        return "shelf";
    }

    /** EAGER and COOPERATIVE. */
    public static class Cooperative extends CooperativeStickyAssignor {
        @Override
        public String name() {
            return "shelf-cooperative";
        }
    }

    /** EAGER alone, under the name of Kafka's cooperative assignor. */
    public static class Eager extends RangeAssignor {
        @Override
        public String name() {
            return "cooperative-sticky";
        }
    }

    /** EAGER and COOPERATIVE, under the name of Kafka's eager assignor. */
    public static class Range extends CooperativeStickyAssignor {
        @Override
        public String name() {
            return "range";
        }
    }

    /** COOPERATIVE alone: no list with an eager assignor can hold it. */
    public static class Only extends CooperativeStickyAssignor {
        @Override
        public String name() {
            return "shelf-only";
        }

        @Override
        public List<RebalanceProtocol> supportedProtocols() {
            return Collections.singletonList(RebalanceProtocol.COOPERATIVE);
        }
    }
}
