package main

import (
	"context"
	"fmt"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stay is one member of a group with franz-go, by the group protocol `classic` or `consumer`. It
// prints "assigned N" at each rebalance and the partition, offset and value of each record. Told to
// end (SIGTERM) it commits and leaves the group.
func stay(bootstrap, topic, group, protocol string) {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var held atomic.Int64
	count := func(change int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			now := held.Add(int64(change * len(partitions[topic])))
			if change > 0 {
				fmt.Println("assigned", now)
			}
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(count(1)),
		kgo.OnPartitionsRevoked(count(-1)),
		kgo.OnPartitionsLost(count(-1)),
	}
	switch protocol {
	case "classic":
		options = append(options, kgo.SessionTimeout(6*time.Second), kgo.HeartbeatInterval(500*time.Millisecond))
	case "consumer":
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	default:
		fail("no protocol %q", protocol)
	}
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
	fmt.Println("done")
}
