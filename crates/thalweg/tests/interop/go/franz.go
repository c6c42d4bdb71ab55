package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franz is franz-go's kgo and kadm.
type franz struct {
	bootstrap string
	admin     *kadm.Client
}

func newFranz(bootstrap string) franz {
	return franz{bootstrap, kadm.NewClient(try(kgo.NewClient(kgo.SeedBrokers(bootstrap))))}
}

func (f franz) connect(options ...kgo.Opt) *kgo.Client {
	return try(kgo.NewClient(append(options, kgo.SeedBrokers(f.bootstrap))...))
}

func (f franz) create(topic string, partitions int) error {
	answer, err := f.admin.CreateTopic(patient(), int32(partitions), 1, nil, topic)
	if errors.Is(err, kerr.TopicAlreadyExists) || errors.Is(answer.Err, kerr.TopicAlreadyExists) {
		return errExists
	}
	return err
}

func (f franz) remove(topic string) error {
	answer, err := f.admin.DeleteTopic(patient(), topic)
	return errors.Join(err, answer.Err)
}

func (f franz) topics() ([]string, error) {
	listed, err := f.admin.ListTopics(patient())
	return listed.Names(), err
}

func (f franz) groups() ([]string, error) {
	listed, err := f.admin.ListGroups(patient())
	return listed.Groups(), err
}

func (f franz) produce(topic string, partition int, codec string, values [][]byte) ([]int64, error) {
	codecs := map[string]kgo.CompressionCodec{
		"none":   kgo.NoCompression(),
		"gzip":   kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(),
		"lz4":    kgo.Lz4Compression(),
		"zstd":   kgo.ZstdCompression(),
	}
	return f.send(topic, partition, values, kgo.ProducerBatchCompression(codecs[codec]),
		kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.MaxProduceRequestsInflightPerBroker(1))
}

// produceOnce has kgo's defaults: idempotent, acks=all.
func (f franz) produceOnce(topic string, values [][]byte) ([]int64, error) {
	return f.send(topic, 0, values)
}

func (f franz) send(topic string, partition int, values [][]byte, options ...kgo.Opt) ([]int64, error) {
	c := f.connect(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	defer c.Close()
	var offsets []int64
	for _, sent := range c.ProduceSync(patient(), franzRecords(topic, partition, values)...) {
		if sent.Err != nil {
			return nil, sent.Err
		}
		offsets = append(offsets, sent.Record.Offset)
	}
	return offsets, nil
}

func (f franz) read(topic string, count int, committedOnly bool) ([]record, error) {
	level := kgo.ReadUncommitted()
	if committedOnly {
		level = kgo.ReadCommitted()
	}
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	c := f.connect(kgo.ConsumePartitions(start), kgo.FetchIsolationLevel(level))
	defer c.Close()
	return franzPoll(c, count)
}

func (f franz) member(group, topic string, count int) ([]record, error) {
	c := f.connect(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	records, err := franzPoll(c, count)
	return records, errors.Join(err, c.CommitUncommittedOffsets(patient()))
}

func (f franz) transaction(topic string, values [][]byte, commits bool) error {
	c := f.connect(kgo.TransactionalID("franz"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer c.Close()
	if err := c.BeginTransaction(); err != nil {
		return err
	}
	if err := c.ProduceSync(patient(), franzRecords(topic, 0, values)...).FirstErr(); err != nil {
		return err
	}
	return c.EndTransaction(patient(), kgo.TransactionEndTry(commits))
}

func franzRecords(topic string, partition int, values [][]byte) []*kgo.Record {
	var records []*kgo.Record
	for i, value := range values {
		key := fmt.Append(nil, "k", i)
		records = append(records, &kgo.Record{
			Topic:     topic,
			Partition: int32(partition),
			Key:       key,
			Value:     value,
			Headers:   []kgo.RecordHeader{{Key: "i", Value: key}},
		})
	}
	return records
}

func franzPoll(c *kgo.Client, count int) ([]record, error) {
	var records []record
	for len(records) < count {
		fetches := c.PollFetches(patient())
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(records), count, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got := record{int(r.Partition), r.Offset, r.Key, r.Value, ""}
			for _, header := range r.Headers {
				got.header = string(header.Value)
			}
			records = append(records, got)
		})
	}
	return records, nil
}

// patient is a context that ends when the steps have waited long enough.
func patient() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	// The process ends soon; what is left of the timer ends with it.
	_ = cancel
	return ctx
}
