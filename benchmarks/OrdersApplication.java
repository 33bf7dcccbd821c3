import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** The orders topology on the JVM library, or re-keying alone. Arguments: name=value of StreamsConfig, output=topic. */
public class OrdersApplication {
    private static final ObjectReader ORDERS = new ObjectMapper().readerFor(Order.class);

    /** A value of the topic; fields that nobody declared are passed over. */
    @JsonIgnoreProperties(ignoreUnknown = true)
    public record Order(@JsonProperty("Id") String id, @JsonProperty("ProductType") long productType) {}

    public static void main(String[] arguments) {
        Properties config = new Properties();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            config.put(argument.substring(0, at), argument.substring(at + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        String name = "orders-products-quantities";
        KStream<String, byte[]> orders = builder.stream("orders", Consumed.with(Serdes.String(), Serdes.ByteArray()));
        String output = (String) config.remove("output");
        if (output == null) {
            orders.groupBy((key, value) -> productType(value), Grouped.with(name, Serdes.String(), Serdes.ByteArray()))
                .count(Materialized.as(name));
        } else {
            orders.selectKey((key, value) -> productType(value))
                .to(output, Produced.with(Serdes.String(), Serdes.ByteArray()));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setStateListener((now, before) -> System.out.println(System.currentTimeMillis() + " " + now));
        // Without this a closed instance stays in the group until its session expires, and the next one waits for it.
        CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP)
            .withTimeout(Duration.ofSeconds(60));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leave)));
        streams.start();
    }

    private static String productType(byte[] value) {
        try {
            return Long.toString(ORDERS.<Order>readValue(value).productType());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
