"""paho-mqtt against one server: QoS 0 and 1, wildcards, retained, will, persistent session.

Usage: mqtt_paho.py PORT
"""

import json
import queue
import socket
import sys
import time

import paho.mqtt.client as mqtt

port = int(sys.argv[1])


class Client:
    def __init__(self, name, clean=True, will=None):
        self.inbox = queue.Queue()
        self.ready = queue.Queue()
        self.client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=clean, protocol=mqtt.MQTTv311
        )
        self.client.on_message = lambda _c, _u, m: self.inbox.put((m.topic, m.payload, m.qos, bool(m.retain)))
        self.client.on_connect = lambda _c, _u, flags, code, _p: self.ready.put((flags, code))
        self.client.on_subscribe = lambda _c, _u, _m, codes, _p: self.ready.put(codes)
        if will:
            self.client.will_set(*will)
        self.client.connect("127.0.0.1", port, keepalive=30)
        self.client.loop_start()
        self.flags, code = self.ready.get(timeout=10)
        assert not code.is_failure, code

    def subscribe(self, topic, qos):
        self.client.subscribe(topic, qos)
        return [code.value for code in self.ready.get(timeout=10)]

    def publish(self, topic, payload, qos=0, retain=False):
        info = self.client.publish(topic, payload, qos, retain)
        info.wait_for_publish(10)
        assert info.is_published()

    def take(self):
        return self.inbox.get(timeout=10)

    def nothing(self):
        time.sleep(0.2)
        assert self.inbox.empty(), self.inbox.get()

    def close(self):
        self.client.disconnect()
        self.client.loop_stop()


subscriber, publisher = Client("sub"), Client("pub")
assert subscriber.subscribe("plant/+/temp", 1) == [1]
assert subscriber.subscribe("alarm/#", 0) == [0]
publisher.publish("plant/a/temp", b"21.5", 1)
assert subscriber.take() == ("plant/a/temp", b"21.5", 1, False)
publisher.publish("alarm/fire/hall", b"!", 1)
assert subscriber.take() == ("alarm/fire/hall", b"!", 0, False)
publisher.publish("plant/a/b/temp", b"no", 1)
subscriber.nothing()

publisher.publish("state/door", b"open", 1, retain=True)
late = Client("late")
late.subscribe("state/#", 1)
assert late.take() == ("state/door", b"open", 1, True)
publisher.publish("state/door", b"", 1, retain=True)
assert late.take()[1] == b""
later = Client("later")
later.subscribe("state/#", 1)
later.nothing()

dying = Client("dying", will=("alarm/gone", b"dying", 1, False))
dying.client.socket().shutdown(socket.SHUT_RDWR)
assert subscriber.take() == ("alarm/gone", b"dying", 0, False)
dying.client.loop_stop()

away = Client("away", clean=False)
away.subscribe("queue/#", 1)
away.close()
for index in range(20):
    publisher.publish("queue/x", b"%d" % index, 1)
back = Client("away", clean=False)
assert back.flags.session_present
assert [back.take()[1] for _ in range(20)] == [b"%d" % i for i in range(20)]

big = b"z" * 200_000
publisher.publish("alarm/big", big, 1)
assert subscriber.take()[1] == big
for client in (subscriber, publisher, late, later, back):
    client.close()
print(json.dumps({"checked": True}))
