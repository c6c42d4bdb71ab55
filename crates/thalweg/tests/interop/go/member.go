package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stay is one member of a group, of a kind of client. It prints "assigned N" at each rebalance and the
// partition, offset and value of each record. Told to end (SIGTERM) it commits and leaves the group.
func stay(bootstrap, topic, group, kind string) {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch kind {
	case "franz-classic":
		older := []kgo.Opt{kgo.SessionTimeout(memberSession), kgo.HeartbeatInterval(memberBeat)}
		stayFranz(told, bootstrap, topic, group, older)
	case "franz-consumer":
		newer := []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
		stayFranz(told, bootstrap, topic, group, newer)
	case "sarama":
		staySarama(told, bootstrap, topic, group)
	case "segmentio":
		staySegmentio(told, bootstrap, topic, group)
	default:
		fail("no kind %q", kind)
	}
	fmt.Println("done")
}

func stayFranz(told context.Context, bootstrap, topic, group string, more []kgo.Opt) {
	var held atomic.Int64
	count := func(change int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			now := held.Add(int64(change * len(partitions[topic])))
			if change > 0 {
				fmt.Println("assigned", now)
			}
		}
	}
	options := append(more,
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(count(1)),
		kgo.OnPartitionsRevoked(count(-1)),
		kgo.OnPartitionsLost(count(-1)),
	)
	c := try(kgo.NewClient(options...))
	for told.Err() == nil {
		fetches := c.PollFetches(told)
		fetches.EachRecord(func(r *kgo.Record) {
			fmt.Println("record", r.Partition, r.Offset, string(r.Value))
		})
		waited, done := context.WithTimeout(context.Background(), patience)
		if err := c.CommitUncommittedOffsets(waited); err != nil {
			// The group went on without this member, which joins again.
			fmt.Println("commit refused")
		}
		done()
	}
	c.Close()
}

// saramaMember is told by sarama what it holds and reads.
type saramaMember struct{ topic string }

func (m saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	fmt.Println("assigned", len(session.Claims()[m.topic]))
	return nil
}

func (m saramaMember) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m saramaMember) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		fmt.Println("record", message.Partition, message.Offset, string(message.Value))
		session.MarkMessage(message, "")
	}
	return nil
}

func staySarama(told context.Context, bootstrap, topic, group string) {
	config := saramaConfig()
	config.Consumer.Offsets.AutoCommit.Enable = true
	config.Consumer.Offsets.AutoCommit.Interval = 200 * time.Millisecond
	config.Consumer.Group.Session.Timeout = memberSession
	config.Consumer.Group.Heartbeat.Interval = memberBeat
	c := try(sarama.NewConsumerGroup([]string{bootstrap}, group, config))
	for told.Err() == nil {
		err := c.Consume(told, []string{topic}, saramaMember{topic})
		if err != nil && told.Err() == nil {
			fmt.Println("joins again:", err)
		}
	}
	must(c.Close())
}

func staySegmentio(told context.Context, bootstrap, topic, group string) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:           []string{bootstrap},
		Topic:             topic,
		GroupID:           group,
		StartOffset:       kafka.FirstOffset,
		MaxWait:           memberBeat,
		SessionTimeout:    memberSession,
		HeartbeatInterval: memberBeat,
		// It tells of what it holds nowhere else.
		Logger: kafka.LoggerFunc(func(format string, arguments ...any) {
			if strings.HasPrefix(format, "subscribed to topics and partitions") {
				fmt.Println("assigned", reflect.ValueOf(arguments[0]).Len())
			}
		}),
	})
	for told.Err() == nil {
		message, err := reader.FetchMessage(told)
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				fmt.Println("reads again:", err)
			}
			continue
		}
		fmt.Println("record", message.Partition, message.Offset, string(message.Value))
		if err := reader.CommitMessages(context.Background(), message); err != nil {
			fmt.Println("commit refused")
		}
	}
	must(reader.Close())
}

const (
	memberSession = 6 * time.Second
	memberBeat    = 500 * time.Millisecond
)
