// paho.golang against one server: all qualities, properties, a kept session, a shared subscription.
//
// Usage: go-mqtt PORT
// Exits non-zero on the first thing that is not as the standard has it.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/eclipse/paho.golang/paho"
)

const patience = 20 * time.Second

type link struct {
	*paho.Client
	inbox   chan *paho.Publish
	present bool
}

func open(port, id string, clean bool, expiry uint32) *link {
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	check(err)
	l := &link{inbox: make(chan *paho.Publish, 100)}
	l.Client = paho.NewClient(paho.ClientConfig{
		Conn: conn,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(p paho.PublishReceived) (bool, error) {
				l.inbox <- p.Packet
				return true, nil
			},
		},
	})
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connack, err := l.Connect(ctx, &paho.Connect{
		ClientID:   id,
		CleanStart: clean,
		KeepAlive:  30,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &expiry},
	})
	check(err)
	l.present = connack.SessionPresent
	return l
}

func (l *link) take() *paho.Publish {
	select {
	case got := <-l.inbox:
		return got
	case <-time.After(patience):
		log.Fatal("nothing came")
		return nil
	}
}

func (l *link) publish(topic, payload string, qos byte, retain bool) {
	expiry := uint32(60)
	_, err := l.Publish(context.Background(), &paho.Publish{
		Topic: topic, Payload: []byte(payload), QoS: qos, Retain: retain,
		Properties: &paho.PublishProperties{
			ResponseTopic:   "answer",
			CorrelationData: []byte("c"),
			MessageExpiry:   &expiry,
			User:            paho.UserProperties{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}},
		},
	})
	check(err)
}

func (l *link) subscribe(filter string, qos byte, identifier int) {
	_, err := l.Subscribe(context.Background(), &paho.Subscribe{
		Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: qos}},
		Properties:    &paho.SubscribeProperties{SubscriptionIdentifier: &identifier},
	})
	check(err)
}

func main() {
	port := os.Args[1]
	publisher := open(port, "go-p", true, 0)
	subscriber := open(port, "go-s", true, 60)
	subscriber.subscribe("go/#", 2, 7)
	subscriber.subscribe("$share/g/shared/#", 1, 8)
	for qos := byte(0); qos < 3; qos++ {
		publisher.publish("go/x", fmt.Sprint("m", qos), qos, false)
		got := subscriber.take()
		want(got.Topic, "go/x")
		want(string(got.Payload), fmt.Sprint("m", qos))
		want(fmt.Sprint(got.QoS), fmt.Sprint(qos))
		want(got.Properties.ResponseTopic, "answer")
		want(string(got.Properties.CorrelationData), "c")
		want(fmt.Sprint(got.Properties.User), "[{b 1} {a 2}]")
		want(fmt.Sprint(*got.Properties.SubscriptionIdentifier), "7")
	}
	publisher.publish("shared/x", "s", 2, false)
	want(fmt.Sprint(subscriber.take().QoS), "1")
	check(subscriber.Disconnect(&paho.Disconnect{ReasonCode: 0}))
	publisher.publish("go/away", "kept", 1, true)
	subscriber = open(port, "go-s", false, 60)
	want(fmt.Sprint(subscriber.present), "true")
	want(string(subscriber.take().Payload), "kept")
	check(subscriber.Disconnect(&paho.Disconnect{ReasonCode: 0}))
	check(publisher.Disconnect(&paho.Disconnect{ReasonCode: 0}))
	fmt.Println(`{"checked": true}`)
}

func want(got, expected string) {
	if got != expected {
		log.Fatalf("got %q, expected %q", got, expected)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
