import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.api.MessagesApi;
import org.openapitools.client.api.QueuesApi;
import org.openapitools.client.model.Pull;
import org.openapitools.client.model.Settle;
import org.openapitools.client.model.SettleOutcome;

/** Publishes, pulls and settles with the client of openapi-generator's java (native). */
public class Drive {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        ApiClient client = new ApiClient();
        client.updateBaseUri(System.getenv("WEIR_URL"));
        MessagesApi messages = new MessagesApi(client);
        // Optional headers are arguments too, in the order of the document.
        var published = messages.publishMessage("default", name, Map.of("order", 7), "k", null, null, null, null, null,
            null, null, null, null, null, null, null, null, null, null, null);
        if (published.getDuplicate()) throw new AssertionError("a duplicate");
        QueuesApi queues = new QueuesApi(client);
        var pulled = queues.pullMessages("default", name, null, new Pull().max(1L).waitMs(5000L));
        var delivery = pulled.getMessages().get(0);
        if (!delivery.getKey().equals("k") || !delivery.getData().equals(Map.of("order", 7))) {
            throw new AssertionError("another message: " + delivery);
        }
        var settled = queues.settleMessages("default", name, null, new Settle().ack(List.of(delivery.getLease())));
        if (settled.getResults().get(0).getResult() != SettleOutcome.SETTLE_OUTCOME_OK) throw new AssertionError(settled);
    }
}
