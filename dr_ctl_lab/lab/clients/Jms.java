/*
 * Clients of the brokers' own Java libraries, for a program that speaks lines: CORE and OpenWire.
 *
 * A line of standard input is a command, a line of standard output what came of it: words with tabs between, the
 * client's number first. Text that may hold anything is in base64; "-" stands for none. A name that is given with a
 * command comes back as `confirmed` once the broker has it. MODE is the library's number for acknowledging one message.
 *
 *     N open FACTORY URL USER PASSWORD MODE                            N opened | N refused TEXT
 *     N subscribe NAME PLACE SELECTOR                                  N came PLACE TOKEN ID
 *     N send NAME PLACE BODY PART GROUP DELAY LASTS URGENT HEADERS     N confirmed NAME
 *     N ack NAME TOKEN                                                 N lost TEXT
 *     N close
 */
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.ConnectionFactory;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.JMSSecurityException;
import javax.jms.Message;
import javax.jms.MessageProducer;
import javax.jms.Session;
import javax.jms.TextMessage;

public class Jms {
    private static final String NONE = "-";
    private static final String SUBSCRIPTION = "::";
    private static final String ID_HEADER = "order_id";
    private static final int USUAL = 4;
    private static final int URGENT = 8;
    /** Messages in hand: the libraries count one as done with once its listener has returned. */
    private static final int MOST_HELD = 10;

    public static void main(String[] words) throws Exception {
        Map<String, Jms> clients = new HashMap<>();
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] command = line.split("\t", -1);
            clients.computeIfAbsent(command[0], Jms::new).take(command);
            if (command[1].equals("close")) {
                clients.remove(command[0]);
            }
        }
        System.exit(0);
    }

    private final String number;
    private final ExecutorService commands = Executors.newSingleThreadExecutor();
    private final Map<Long, Message> held = new ConcurrentHashMap<>();
    private final Semaphore hands = new Semaphore(MOST_HELD);
    private final Map<String, MessageProducer> producers = new HashMap<>();
    private final AtomicLong tokens = new AtomicLong();
    private Connection connection;
    private Session sending;
    private int mode;
    private boolean core;

    private Jms(String number) {
        this.number = number;
    }

    private void take(String[] command) {
        commands.execute(() -> {
            try {
                carryOut(command);
            } catch (JMSSecurityException error) {
                say("refused", text(error));
            } catch (Exception error) {
                say("lost", text(error));
            }
        });
    }

    private void carryOut(String[] command) throws Exception {
        switch (command[1]) {
            case "open" -> open(command);
            case "subscribe" -> subscribe(command[3], plain(command[4]));
            case "send" -> send(command);
            case "ack" -> ack(Long.valueOf(command[3]));
            default -> close();
        }
        if (!command[1].equals("open") && !command[1].equals("close") && !command[2].equals(NONE)) {
            say("confirmed", command[2]);
        }
    }

    private void open(String[] command) throws Exception {
        var made = Class.forName(command[2]).getConstructor(String.class).newInstance(command[3]);
        mode = Integer.parseInt(command[6]);
        core = command[2].contains("artemis");
        connection = ((ConnectionFactory) made).createConnection(command[4], command[5]);
        connection.setExceptionListener(error -> say("lost", text(error)));
        connection.start();
        sending = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        say("opened", NONE);
    }

    private void subscribe(String place, String selector) throws JMSException {
        var session = connection.createSession(false, mode);
        var queue = session.createQueue(place);
        var consumer = selector == null ? session.createConsumer(queue) : session.createConsumer(queue, selector);
        consumer.setMessageListener(message -> came(place, message));
    }

    private void came(String place, Message message) {
        try {
            hands.acquireUninterruptibly();
            long token = tokens.incrementAndGet();
            held.put(token, message);
            say("came", place, String.valueOf(token), identify(message));
        } catch (JMSException error) {
            say("lost", text(error));
        }
    }

    private void ack(Long token) throws JMSException {
        held.remove(token).acknowledge();
        hands.release();
    }

    private static String identify(Message message) throws JMSException {
        String ident = message.getStringProperty(ID_HEADER);
        if (ident == null && message instanceof TextMessage text) {
            ident = text.getText().lines().findFirst().orElse(null);
        } else if (ident == null && message instanceof BytesMessage bytes) {
            byte[] start = new byte[(int) Math.min(bytes.getBodyLength(), 256)];
            bytes.readBytes(start);
            ident = new String(start, StandardCharsets.UTF_8).lines().findFirst().orElse(null);
        }
        return ident == null ? message.getJMSMessageID() : ident;
    }

    private void send(String[] command) throws JMSException {
        var message = sending.createTextMessage(plain(command[4]));
        if (!command[5].equals(NONE)) {
            message.setStringProperty("part", command[5]);
        }
        if (!command[6].equals(NONE)) {
            message.setStringProperty("JMSXGroupID", command[6]);
        }
        if (!command[7].equals("0")) {
            long delay = Long.parseLong(command[7]);
            message.setLongProperty("AMQ_SCHEDULED_DELAY", delay);
            if (core) {
                message.setLongProperty("_AMQ_SCHED_DELIVERY", System.currentTimeMillis() + delay);
            }
        }
        for (int at = 10; at + 1 < command.length; at += 2) {
            message.setStringProperty(command[at], plain(command[at + 1]));
        }
        int priority = command[9].equals("1") ? URGENT : USUAL;
        producer(command[3]).send(message, DeliveryMode.PERSISTENT, priority, Long.parseLong(command[8]));
    }

    private MessageProducer producer(String place) throws JMSException {
        if (!producers.containsKey(place)) {
            int end = place.indexOf(SUBSCRIPTION);
            var where = end < 0 ? sending.createQueue(place) : sending.createTopic(place.substring(0, end));
            producers.put(place, sending.createProducer(where));
        }
        return producers.get(place);
    }

    private void close() {
        commands.shutdown();
        hands.release(Integer.MAX_VALUE / 2);
        try {
            if (connection != null) {
                connection.close();
            }
        } catch (JMSException gone) {
            // already what is wanted
        }
    }

    private void say(String... words) {
        String line = number + "\t" + String.join("\t", words);
        synchronized (System.out) {
            System.out.println(line);
        }
    }

    private static String plain(String word) {
        return word.equals(NONE) ? null : new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static String text(Exception error) {
        return String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
    }
}
