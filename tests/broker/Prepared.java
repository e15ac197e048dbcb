/** Leaves one prepared transaction with sends on a queue: what a transaction manager that died leaves behind. */
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.artemis.core.transaction.impl.XidImpl;
import org.apache.activemq.artemis.jms.client.ActiveMQXAConnectionFactory;

public class Prepared {
    public static void main(String[] words) throws Exception {
        try (var factory = new ActiveMQXAConnectionFactory(words[0])) {
            var connection = factory.createXAConnection(words[1], words[2]);
            var session = connection.createXASession();
            var producer = session.createProducer(session.createQueue(words[3]));
            XAResource resource = session.getXAResource();
            Xid xid = new XidImpl("branch".getBytes(), 1, "prepared".getBytes());
            resource.start(xid, XAResource.TMNOFLAGS);
            producer.send(session.createTextMessage("in doubt"));
            resource.end(xid, XAResource.TMSUCCESS);
            resource.prepare(xid);
            connection.close();
        }
    }
}
