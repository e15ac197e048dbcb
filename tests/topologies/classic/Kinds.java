/** Sends one message of every kind that JMS has, each with an id of its own, as no STOMP client can. */
import javax.jms.DeliveryMode;
import javax.jms.Message;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;

public class Kinds {
    private static String header;
    private static MessageProducer producer;

    public static void main(String[] words) throws Exception {
        header = words[4];
        var connection = new ActiveMQConnectionFactory(words[1], words[2], words[0]).createConnection();
        var session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        producer = session.createProducer(session.createQueue(words[3]));
        var map = session.createMapMessage();
        map.setString("key", "value");
        send("map", map);
        send("object", session.createObjectMessage("an object"));
        var stream = session.createStreamMessage();
        stream.writeInt(7);
        send("stream", stream);
        send("empty", session.createMessage());
        var typed = session.createTextMessage("typed");
        typed.setIntProperty("amountClass", 7);
        send("typed", typed);
        var bytes = session.createBytesMessage();
        bytes.writeBytes(new byte[] {0, 1, 2, (byte) 255});
        send("bytes", bytes);
        var text = session.createTextMessage("größer");
        text.setStringProperty("region", "north: \\ south");
        text.setJMSCorrelationID("order-1");
        text.setJMSType("order");
        text.setJMSReplyTo(session.createQueue("answers"));
        producer.setPriority(7);
        producer.setTimeToLive(3_600_000);
        send("text", text);
        connection.close();
    }

    private static void send(String name, Message message) throws Exception {
        message.setStringProperty(header, name);
        producer.send(message, DeliveryMode.PERSISTENT, producer.getPriority(), producer.getTimeToLive());
    }
}
