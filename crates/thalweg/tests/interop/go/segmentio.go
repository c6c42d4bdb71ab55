package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentio is segmentio's kafka-go, which has neither idempotence nor transactions.
type segmentio struct {
	bootstrap string
	client    *kafka.Client
}

func newSegmentio(bootstrap string) segmentio {
	return segmentio{bootstrap, &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: patience}}
}

func (s segmentio) create(topic string, partitions int) error {
	wanted := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	request := kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}}
	answer, err := s.client.CreateTopics(patient(), &request)
	if err != nil {
		return err
	}
	if errors.Is(answer.Errors[topic], kafka.TopicAlreadyExists) {
		return errExists
	}
	return answer.Errors[topic]
}

func (s segmentio) remove(topic string) error {
	answer, err := s.client.DeleteTopics(patient(), &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return answer.Errors[topic]
}

func (s segmentio) topics() ([]string, error) {
	answer, err := s.client.Metadata(patient(), &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, topic := range answer.Topics {
		names = append(names, topic.Name)
	}
	return names, nil
}

func (s segmentio) groups() ([]string, error) {
	answer, err := s.client.ListGroups(patient(), &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, group := range answer.Groups {
		names = append(names, group.GroupID)
	}
	return names, answer.Error
}

func (s segmentio) produce(topic string, partition int, codec string, values [][]byte) ([]int64, error) {
	codecs := []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	names := []string{"none", "gzip", "snappy", "lz4", "zstd"}
	writer := kafka.Writer{
		Addr:         kafka.TCP(s.bootstrap),
		Topic:        topic,
		Compression:  codecs[slices.Index(names, codec)],
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond,
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int {
			return partition
		}),
	}
	var messages []kafka.Message
	for i, value := range values {
		key := fmt.Append(nil, "k", i)
		header := kafka.Header{Key: "i", Value: key}
		messages = append(messages, kafka.Message{Key: key, Value: value, Headers: []kafka.Header{header}})
	}
	return nil, errors.Join(writer.WriteMessages(patient(), messages...), writer.Close())
}

func (s segmentio) read(topic string, count int, committedOnly bool) ([]record, error) {
	config := kafka.ReaderConfig{Brokers: []string{s.bootstrap}, Topic: topic, MaxWait: fetchWait}
	if committedOnly {
		config.IsolationLevel = kafka.ReadCommitted
	}
	reader := kafka.NewReader(config)
	defer reader.Close()
	return segmentioTake(count, func(ctx context.Context) (kafka.Message, error) {
		return reader.ReadMessage(ctx)
	})
}

func (s segmentio) member(group, topic string, count int) ([]record, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:     []string{s.bootstrap},
		GroupID:     group,
		Topic:       topic,
		StartOffset: kafka.FirstOffset,
		MaxWait:     fetchWait,
	})
	defer reader.Close()
	return segmentioTake(count, func(ctx context.Context) (kafka.Message, error) {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return message, err
		}
		return message, reader.CommitMessages(ctx, message)
	})
}

func segmentioTake(count int, next func(context.Context) (kafka.Message, error)) ([]record, error) {
	ctx := patient()
	var records []record
	for len(records) < count {
		message, err := next(ctx)
		if err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(records), count, err)
		}
		got := record{message.Partition, message.Offset, message.Key, message.Value, ""}
		for _, header := range message.Headers {
			got.header = string(header.Value)
		}
		records = append(records, got)
	}
	return records, nil
}

// A reader that is closed waits for its last fetch to come back.
const fetchWait = 100 * time.Millisecond
