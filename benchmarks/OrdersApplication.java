import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;

/** The orders topology on the JVM library: one instance of one thread. Arguments: name=value of StreamsConfig. */
public class OrdersApplication {
    public static void main(String[] arguments) {
        Properties config = new Properties();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            config.put(argument.substring(0, at), argument.substring(at + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        String name = "orders-products-quantities";
        builder.stream("orders", Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, value) -> productType(value), Grouped.with(name, Serdes.String(), Serdes.String()))
            .count(Materialized.as(name));
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println(System.currentTimeMillis() + " " + now));
        // Without this a closed instance stays in the group until its session expires, and the next one waits for it.
        CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(60));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leave)));
        streams.start();
    }

    /** The digits behind the last colon: no parser's speed is measured here. */
    private static String productType(String value) {
        return value.substring(value.lastIndexOf(':') + 1, value.length() - 1).trim();
    }
}
