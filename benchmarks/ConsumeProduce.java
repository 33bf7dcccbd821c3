import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * The least that re-keying orders takes on the JVM: consume, parse, produce, one transaction every 100 ms; a thread a
 * partition, and no framework. Arguments: bootstrap servers, group, output topic, partitions. Ends when all is read.
 */
public class ConsumeProduce {
    public static void main(String[] arguments) throws InterruptedException {
        Thread[] threads = new Thread[Integer.parseInt(arguments[3])];
        for (int number = 0; number < threads.length; number++) {
            int partition = number;
            threads[number] = new Thread(() -> run(arguments[0], arguments[1], arguments[2], partition));
            threads[number].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void run(String servers, String group, String output, int number) {
        Properties reading = new Properties();
        reading.putAll(Map.of("bootstrap.servers", servers, "group.id", group, "isolation.level", "read_committed",
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "max.poll.records", "10000",
            "key.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            "value.deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer"));
        Properties writing = new Properties();
        writing.putAll(Map.of("bootstrap.servers", servers, "transactional.id", group + "-" + number,
            "compression.type", "lz4", "batch.size", "1000000", "linger.ms", "5", "buffer.memory", "67108864",
            "key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer",
            "value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer"));
        var orders = new ObjectMapper().readerFor(OrdersApplication.Order.class);
        TopicPartition partition = new TopicPartition("orders", number);
        try (var consumer = new KafkaConsumer<byte[], byte[]>(reading);
            var producer = new KafkaProducer<byte[], byte[]>(writing)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            producer.initTransactions();
            while (consumer.position(partition) < end) {
                producer.beginTransaction();
                for (long until = System.nanoTime() + 100_000_000L; System.nanoTime() < until;) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(10))) {
                        long product = orders.<OrdersApplication.Order>readValue(record.value()).productType();
                        byte[] key = Long.toString(product).getBytes();
                        producer.send(new ProducerRecord<>(output, null, record.timestamp(), key, record.value()));
                    }
                }
                var position = new OffsetAndMetadata(consumer.position(partition));
                producer.sendOffsetsToTransaction(Map.of(partition, position), consumer.groupMetadata());
                producer.commitTransaction();
            }
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
