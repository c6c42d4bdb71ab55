package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// saramaClient is IBM's sarama.
type saramaClient struct {
	bootstrap []string
	admin     sarama.ClusterAdmin
}

func newSarama(bootstrap string) saramaClient {
	addresses := []string{bootstrap}
	return saramaClient{addresses, try(sarama.NewClusterAdmin(addresses, saramaConfig()))}
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_0_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return config
}

func (s saramaClient) create(topic string, partitions int) error {
	detail := sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}
	err := s.admin.CreateTopic(topic, &detail, false)
	if errors.Is(err, sarama.ErrTopicAlreadyExists) {
		return errExists
	}
	return err
}

func (s saramaClient) remove(topic string) error { return s.admin.DeleteTopic(topic) }

func (s saramaClient) topics() ([]string, error) {
	listed, err := s.admin.ListTopics()
	return slices.Collect(maps.Keys(listed)), err
}

func (s saramaClient) groups() ([]string, error) {
	listed, err := s.admin.ListConsumerGroups()
	return slices.Collect(maps.Keys(listed)), err
}

func (s saramaClient) produce(topic string, partition int, codec string, values [][]byte) ([]int64, error) {
	config := saramaConfig()
	must(config.Producer.Compression.UnmarshalText([]byte(codec)))
	return s.send(config, topic, partition, values)
}

func (s saramaClient) produceOnce(topic string, values [][]byte) ([]int64, error) {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	return s.send(config, topic, 0, values)
}

func (s saramaClient) send(config *sarama.Config, topic string, partition int, values [][]byte) ([]int64, error) {
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	messages := saramaMessages(topic, partition, values)
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	var offsets []int64
	for _, message := range messages {
		offsets = append(offsets, message.Offset)
	}
	return offsets, nil
}

func (s saramaClient) read(topic string, count int, committedOnly bool) ([]record, error) {
	config := saramaConfig()
	if committedOnly {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		return nil, err
	}
	defer partition.Close()
	var records []record
	for len(records) < count {
		select {
		case message := <-partition.Messages():
			records = append(records, saramaRecord(message))
		case <-time.After(patience):
			return nil, fmt.Errorf("only %d of %d records came", len(records), count)
		}
	}
	return records, nil
}

func (s saramaClient) member(group, topic string, count int) ([]record, error) {
	member, err := sarama.NewConsumerGroup(s.bootstrap, group, saramaConfig())
	if err != nil {
		return nil, err
	}
	defer member.Close()
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	taken := saramaTaken{make(chan *sarama.ConsumerMessage), ctx}
	ended := make(chan error, 1)
	go func() { ended <- member.Consume(ctx, []string{topic}, taken) }()
	var records []record
	for len(records) < count {
		select {
		case message := <-taken.messages:
			records = append(records, saramaRecord(message))
		case err := <-ended:
			return nil, fmt.Errorf("%d of %d records: %w", len(records), count, err)
		}
	}
	done()
	return records, <-ended
}

// saramaTaken hands on what the group's sessions bring, and commits as each of them ends.
type saramaTaken struct {
	messages chan *sarama.ConsumerMessage
	ctx      context.Context
}

func (saramaTaken) Setup(sarama.ConsumerGroupSession) error { return nil }

func (saramaTaken) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (t saramaTaken) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			select {
			case t.messages <- message:
				session.MarkMessage(message, "")
			case <-t.ctx.Done():
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s saramaClient) transaction(topic string, values [][]byte, commits bool) error {
	config := saramaConfig()
	config.Producer.Idempotent = true
	config.Producer.Transaction.ID = "sarama"
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.SendMessages(saramaMessages(topic, 0, values)); err != nil {
		return err
	}
	if commits {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}

func saramaMessages(topic string, partition int, values [][]byte) []*sarama.ProducerMessage {
	var messages []*sarama.ProducerMessage
	for i, value := range values {
		key := fmt.Append(nil, "k", i)
		messages = append(messages, &sarama.ProducerMessage{
			Topic:     topic,
			Partition: int32(partition),
			Key:       sarama.ByteEncoder(key),
			Value:     sarama.ByteEncoder(value),
			Headers:   []sarama.RecordHeader{{Key: []byte("i"), Value: key}},
		})
	}
	return messages
}

func saramaRecord(message *sarama.ConsumerMessage) record {
	got := record{int(message.Partition), message.Offset, message.Key, message.Value, ""}
	for _, header := range message.Headers {
		got.header = string(header.Value)
	}
	return got
}
