"""paho-mqtt in MQTT 5.0 against one server: QoS 2, properties, sessions, shares, wills, limits.

Usage: mqtt_paho5.py PORT
"""

import json
import queue
import socket
import sys
import time

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

port = int(sys.argv[1])


def properties(kind, **values):
    made = Properties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


class Client:
    def __init__(self, name, clean=True, will=None, **connect):
        self.inbox, self.ready, self.ended = queue.Queue(), queue.Queue(), queue.Queue()
        self.client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, protocol=mqtt.MQTTv5)
        self.client.on_message = lambda _c, _u, m: self.inbox.put(m)
        self.client.on_connect = lambda _c, _u, flags, code, props: self.ready.put((flags, code, props))
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self.ready.put(codes)
        self.client.on_disconnect = lambda _c, _u, _f, code, _p: self.ended.put(code)
        if will:
            self.client.will_set(**will)
        self.client.connect(
            "127.0.0.1", port, clean_start=clean, properties=properties(PacketTypes.CONNECT, **connect)
        )
        self.client.loop_start()
        self.flags, code, self.properties = self.ready.get(timeout=20)
        assert not code.is_failure, code

    def subscribe(self, topic, options, **props):
        self.client.subscribe(topic, options=options, properties=properties(PacketTypes.SUBSCRIBE, **props))
        return [code.value for code in self.ready.get(timeout=20)]

    def publish(self, topic, payload, qos=0, retain=False, **props):
        info = self.client.publish(topic, payload, qos, retain, properties(PacketTypes.PUBLISH, **props))
        info.wait_for_publish(20)
        assert info.is_published()

    def take(self):
        return self.inbox.get(timeout=20)

    def nothing(self):
        time.sleep(0.2)
        assert self.inbox.empty(), self.inbox.get()

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


nameless = Client("")
assert nameless.properties.AssignedClientIdentifier
nameless.close()

publisher = Client("p5")
subscriber = Client("s5", clean=False, SessionExpiryInterval=60, ReceiveMaximum=2)
assert subscriber.subscribe("five/#", SubscribeOptions(qos=2), SubscriptionIdentifier=9) == [2]
user = [("b", "1"), ("a", "2"), ("b", "3")]
for qos in (0, 1, 2):
    publisher.publish(
        "five/x",
        b"m%d" % qos,
        qos,
        UserProperty=user,
        ContentType="text/plain",
        ResponseTopic="answer",
        CorrelationData=b"c",
        PayloadFormatIndicator=1,
        MessageExpiryInterval=60,
    )
    got = subscriber.take()
    assert (got.topic, got.payload, got.qos) == ("five/x", b"m%d" % qos, qos)
    told = got.properties
    assert told.UserProperty == user and told.ContentType == "text/plain" and told.ResponseTopic == "answer"
    assert told.CorrelationData == b"c" and told.MessageExpiryInterval <= 60 and told.SubscriptionIdentifier == [9]

for index in range(20):
    publisher.publish("five/many", b"%d" % index, 2)
assert [subscriber.take().payload for _ in range(20)] == [b"%d" % i for i in range(20)]

echo = Client("echo")
assert echo.subscribe("echo", SubscribeOptions(qos=1, noLocal=True)) == [1]
echo.publish("echo", b"own", 1)
echo.nothing()
echo.close()

publisher.publish("five/kept", b"kept", 1, True)
subscriber.take()
late = Client("late5")
late.subscribe("five/kept", SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND))
late.nothing()
late.subscribe("five/kept", SubscribeOptions(qos=1, retainAsPublished=True))
assert late.take().retain
publisher.publish("five/kept", b"again", 1, True)
assert late.take().retain
assert not subscriber.take().retain
late.close()

members = [Client(f"member{n}") for n in range(2)]
for member in members:
    assert member.subscribe("$share/g/work", SubscribeOptions(qos=1)) == [1]
for index in range(10):
    publisher.publish("work", b"%d" % index, 1)
shared = sorted(int(member.take().payload) for member in members for _ in range(5))
assert shared == list(range(10)), shared
for member in members:
    member.close()

subscriber.close()
# The server reads the two connections at the same time: the farewell first.
time.sleep(0.5)
publisher.publish("five/away", b"brief", 1, MessageExpiryInterval=1)
publisher.publish("five/away", b"long", 2)
time.sleep(1.2)
subscriber = Client("s5", clean=False, SessionExpiryInterval=60)
assert subscriber.flags.session_present
assert subscriber.take().payload == b"long"
over = Client("s5", clean=False, SessionExpiryInterval=60)
assert subscriber.ended.get(timeout=20).value == 0x8E
subscriber.client.loop_stop()

dying = Client("d5", will={"topic": "five/will", "payload": b"gone", "qos": 1})
dying.client.socket().shutdown(socket.SHUT_RDWR)
assert over.take().payload == b"gone"
dying.client.loop_stop()
over.close()
publisher.close()
print(json.dumps({"checked": True}))
