"""Properties files of clients, as people have them."""

from __future__ import annotations

from dataclasses import dataclass

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL = (
    f'security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} required username="me" '
)
LOGIN = f'{SASL}password="pw";\n'
BEGUN = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"


@dataclass(frozen=True)
class PropertyFile:
    """A file, without its `bootstrap.servers`.

    Attributes:
        name: What is special in it.
        text: Its text, in Latin-1.
        refused: A regular expression of what we refuse it with; empty where we take it.
        jvm_differs: Why the JVM client answers otherwise; empty where both take it or both refuse it.
    """

    name: str
    text: str
    refused: str = ""
    jvm_differs: str = ""


IGNORES = "the JVM client ignores it, and would connect in another way than the file says"
LIBRDKAFKA = "librdkafka cannot follow it"
LENIENT = "we read what is unambiguous"

TAKEN = (
    PropertyFile("nothing", ""),
    PropertyFile("a login", LOGIN),
    PropertyFile("blanks after values", LOGIN.replace("512\n", "512 \t \n").replace("TEXT\n", "TEXT  \n")),
    PropertyFile("a form feed after a value", LOGIN.replace("512\n", "512\f\n")),
    PropertyFile("an escaped blank before a value", LOGIN.replace("=SCRAM", "=\\ SCRAM")),
    PropertyFile("a no-break blank as an escape in a password", f'{SASL}password="a\\u00a0b";\n'),
    PropertyFile("a protocol in small letters", LOGIN.replace("SASL_PLAINTEXT", "sasl_plaintext")),
    PropertyFile("a protocol in mixed letters", "security.protocol=PlainText\n"),
    PropertyFile("colons", LOGIN.replace("protocol=", "protocol: ").replace("mechanism=", "mechanism:")),
    PropertyFile("blanks as separators", LOGIN.replace("protocol=", "protocol ").replace("mechanism=", "mechanism\t")),
    PropertyFile("blanks around the separator", LOGIN.replace("mechanism=", "mechanism = ")),
    PropertyFile("indented", "   " + LOGIN.replace("\n", "\n\t ")),
    PropertyFile(
        "lines that go on", LOGIN.replace(" required", " \\\n   required").replace(" password", " \\\n\tpassword")
    ),
    PropertyFile("a line that goes on in a name", LOGIN.replace("security.", "security.\\\n   ")),
    PropertyFile("a value on the next line", LOGIN.replace("mechanism=", "mechanism=\\\n  ")),
    PropertyFile("a comment with !", "! a=b \\\n" + LOGIN),
    PropertyFile("a comment with # that ends with a backslash", "# security.protocol=SSL\\\n" + LOGIN),
    PropertyFile("line ends of Windows", LOGIN.replace("\n", "\r\n")),
    PropertyFile("line ends of old Macs", LOGIN.replace("\n", "\r")),
    PropertyFile("no line end", LOGIN.rstrip("\n")),
    PropertyFile("a name with an escape", LOGIN.replace("security", "\\u0073ecurity")),
    PropertyFile("a value with an escape", LOGIN.replace("SCRAM-SHA", "SCR\\u0041M\\-SHA")),
    PropertyFile("an escaped colon in a name's end", LOGIN.replace("512\n", "512\nclient\\:id=x\n")),
    PropertyFile("a name twice", "security.protocol=SSL\n" + LOGIN),
    PropertyFile("a password with an equals sign", f'{SASL}password="a=b==";\n'),
    PropertyFile("a password with a hash", f'{SASL}password="#a!b";\n'),
    PropertyFile("a password with escaped quotes", f'{SASL}password="a\\\\"b";\n'),
    PropertyFile("a password with backslashes", f'{SASL}password="a\\\\\\\\b";\n'),
    PropertyFile("a password with a semicolon", f'{SASL}password="a;b";\n'),
    PropertyFile("a password with an octal escape", f'{SASL}password="a\\\\101b";\n'),
    PropertyFile("a password in single quotes", f"{SASL}password='a\"b';\n"),
    PropertyFile("a password without quotes", f"{SASL}password=secret-1;\n"),
    PropertyFile("a password in UTF-8", f'{SASL}password="\u00c3\u00a4";\n'),
    PropertyFile("a password that is a template", f'{SASL}password="${{PASSWORD}}";\n'),
    PropertyFile("blanks after the semicolon", LOGIN.replace('";\n', '";  \n')),
    PropertyFile("comments in the login", LOGIN.replace(" required", " required /* a */")),
    PropertyFile("the flag in capitals", LOGIN.replace("required", "REQUIRED")),
    PropertyFile("another flag", LOGIN.replace("required", "requisite")),
    PropertyFile("an option that no module has", LOGIN.replace('";\n', '" debug="true";\n')),
    PropertyFile("tokenauth of nobody", LOGIN.replace('";\n', '" tokenauth="false";\n')),
    PropertyFile("the module of PLAIN with SCRAM", LOGIN.replace(SCRAM, PLAIN)),
    PropertyFile("PLAIN", f'{BEGUN}sasl.jaas.config={PLAIN} required username="me" password="pw";\n'),
    PropertyFile("empty values of a template", "security.protocol=PLAINTEXT\nsasl.jaas.config=\nsasl.mechanism=\n"),
    PropertyFile("empty stores of a template", LOGIN + "ssl.truststore.location=\nssl.keystore.location=\n"),
    PropertyFile("an empty password of a template", LOGIN + "ssl.key.password=\nssl.truststore.password=\n"),
    PropertyFile(
        "stores that plaintext does not use", "security.protocol=PLAINTEXT\nssl.truststore.location=/none.jks\n"
    ),
    PropertyFile("a login that plaintext does not use", LOGIN + "security.protocol=PLAINTEXT\n"),
    PropertyFile(
        "no identification", LOGIN.replace("SASL_PLAINTEXT", "SASL_SSL") + "ssl.endpoint.identification.algorithm=\n"
    ),
    PropertyFile("TLS with the system's authorities", "security.protocol=SSL\n"),
    PropertyFile(
        "versions of TLS", "security.protocol=SSL\nssl.enabled.protocols=TLSv1.2, TLSv1.3\nssl.protocol=TLSv1.3\n"
    ),
    PropertyFile("client auth of a broker", LOGIN + "ssl.client.auth=none\n"),
    PropertyFile("mechanisms of a broker", LOGIN + "sasl.enabled.mechanisms=SCRAM-SHA-512\n"),
    PropertyFile(
        "interceptors and reporters", LOGIN + "interceptor.classes=\nmetric.reporters=\nenable.metrics.push=false\n"
    ),
    PropertyFile("a manager of trust", "security.protocol=SSL\nssl.trustmanager.algorithm=PKIX\n"),
    PropertyFile(
        "login refresh", LOGIN + "sasl.login.refresh.window.factor=0.8\nsasl.login.refresh.buffer.seconds=300 \n"
    ),
    PropertyFile("settings of clients", LOGIN + "acks=all\ngroup.id=x\nclient.id=y\nauto.offset.reset=earliest\n"),
    PropertyFile("settings of nobody", LOGIN + "my.own.setting=1\nconfluent.telemetry=x\n"),
    PropertyFile(
        "one client's beside all clients'", LOGIN + "producer.security.protocol=SASL_SSL\nconsumer.sasl.mechanism=x\n"
    ),
    PropertyFile("addresses with blanks", LOGIN + "bootstrap.servers= 127.0.0.1:1 , 127.0.0.1:2 \n"),
    PropertyFile(
        "addresses with a comma at the end", LOGIN + "bootstrap.servers=127.0.0.1:1,127.0.0.1:2\\\n  ,\n", "", "4.x"
    ),
    PropertyFile("an address of IPv6", LOGIN + "bootstrap.servers=[::1]:9092\n"),
    PropertyFile("a listener's name in an address", LOGIN + "bootstrap.servers=SASL_PLAINTEXT://127.0.0.1:9092\n"),
    PropertyFile("a mark of UTF-8", "\u00ef\u00bb\u00bf" + LOGIN, "", IGNORES),
    PropertyFile("librdkafka's names", BEGUN + "sasl.username=me\nsasl.password= pw \n", "", "it has other names"),
    PropertyFile("librdkafka's truth", "security.protocol=SSL\nenable.ssl.certificate.verification=True \n"),
)

REFUSED = (
    PropertyFile("a malformed escape", "a=\\u12\n" + LOGIN, r"line 1: expected four hexadecimal"),
    PropertyFile(
        "an unknown protocol", "security.protocol=SASL\n", r"security\.protocol .*line 1.*'SASL'.*Did you mean"
    ),
    PropertyFile("a protocol in quotes", 'security.protocol="SASL_SSL"\n', r"Did you mean SASL_SSL"),
    PropertyFile("a protocol that is a template", "security.protocol=${PROTOCOL}\n", r"observed '\$\{PROTOCOL\}'"),
    PropertyFile("no value for the protocol", "security.protocol=\n", r"security\.protocol .*observed no value"),
    PropertyFile(
        "a number that is not used", "security.protocol=SSL\nsasl.login.retry.backoff.ms=soon\n", r"line 2.*a number"
    ),
    PropertyFile("a login's number", LOGIN + "sasl.login.retry.backoff.ms=soon\n", r"backoff\.ms .*line 4.*a number"),
    PropertyFile("addresses without a port", "bootstrap.servers=localhost\n", r"bootstrap\.servers .*host:port"),
    PropertyFile("addresses as a list", "bootstrap.servers=['a:9092']\n", r"bootstrap\.servers .*line 1"),
    PropertyFile(
        "a mechanism in small letters", LOGIN.replace("SCRAM-", "scram-"), "Did you mean SCRAM-SHA-512", "it asks"
    ),
    PropertyFile("no semicolon", LOGIN.replace(";", ""), r"sasl\.jaas\.config .*line 3"),
    PropertyFile("a password that begins with a digit", f"{SASL}password=1a;\n", r"sasl\.jaas\.config"),
    PropertyFile("a password with a slash", f"{SASL}password=a/b;\n", r"sasl\.jaas\.config"),
    PropertyFile("an open quote", f'{SASL}password="a;\n', r"sasl\.jaas\.config"),
    PropertyFile(
        "a whole file of JAAS", f"{BEGUN}sasl.jaas.config=KafkaClient {{ x required; }};\n", r"sasl\.jaas\.config"
    ),
    PropertyFile("two login modules", LOGIN.replace(";\n", f"; {PLAIN} required;\n"), r"sasl\.jaas\.config"),
    PropertyFile("another flag than there is", LOGIN.replace("required", "needed"), r"sasl\.jaas\.config"),
    PropertyFile("no login", BEGUN, r"sasl\.username, sasl\.password"),
    PropertyFile("no password", SASL + ";\n", r"no sasl\.password", "it finds out when the brokers ask"),
    PropertyFile(
        "no store", "security.protocol=SSL\nssl.truststore.location=/none.pem\nssl.truststore.type=PEM\n", "/none.pem"
    ),
    PropertyFile(
        "no file of Java", "security.protocol=SSL\nssl.truststore.certificates=x\nssl.truststore.type=PEM\n", "PEM"
    ),
    PropertyFile("a delegation token", LOGIN.replace('";\n', '" tokenauth="true";\n'), "delegation token", LIBRDKAFKA),
    PropertyFile("no mechanism", LOGIN.replace("sasl.mechanism", "client.id"), r"sasl\.mechanism .*GSSAPI"),
    PropertyFile("Kerberos", LOGIN.replace("SCRAM-SHA-512", "GSSAPI"), "SCRAM-SHA-512"),
    PropertyFile("underscores", "security_protocol=SSL\n", r"Did you mean security\.protocol", IGNORES),
    PropertyFile("capitals", "SECURITY.PROTOCOL=SSL\n", r"Did you mean security\.protocol", IGNORES),
    PropertyFile("camels", "securityProtocol=SSL\n", r"Did you mean security\.protocol", IGNORES),
    PropertyFile("an environment's name", "KAFKA_SECURITY_PROTOCOL=SSL\n", r"Did you mean security\.protocol", IGNORES),
    PropertyFile("a slip", "securty.protocol=SSL\n", r"line 1.*Did you mean security\.protocol", IGNORES),
    PropertyFile("a consumer's", "consumer.security.protocol=SSL\n", r"Did you mean security\.protocol", IGNORES),
    PropertyFile("a producer's", "producer.sasl.mechanism=PLAIN\n", r"Did you mean sasl\.mechanism", IGNORES),
    PropertyFile("Spark's", "kafka.security.protocol=SSL\n", r"Did you mean security\.protocol", IGNORES),
    PropertyFile("Spring's", "spring.kafka.properties.security.protocol=SSL\n", r"mean security\.protocol", IGNORES),
    PropertyFile("kafka-python's", "ssl_cafile=/ca.pem\n", r"Did you mean ssl\.ca\.location", IGNORES),
    PropertyFile("aiokafka's", "sasl_plain_username=me\n", r"Did you mean sasl\.username", IGNORES),
    PropertyFile("a name of nobody", LOGIN + "sasl.nothing=1\n", r"sasl\.nothing .*line 4.*leave it out", IGNORES),
    PropertyFile("no protocol", LOGIN.replace("security.protocol", "client.id"), r"security\.protocol, which", IGNORES),
    PropertyFile(
        "suites", "security.protocol=SSL\nssl.cipher.suites=TLS_AES_128_GCM_SHA256\n", "cannot both", LIBRDKAFKA
    ),
    PropertyFile("two users", LOGIN + "sasl.username=other\n", "Leave one of the two out", IGNORES),
    PropertyFile("two mechanisms", LOGIN + "sasl.mechanisms=PLAIN\n", "Leave sasl.mechanisms out", IGNORES),
)

FILES = (*TAKEN, *REFUSED)
