// Three Kafka clients in Go against one broker, each by the same steps: every codec byte for byte,
// a group that commits and resumes, idempotence, transactions, admin.
//
// Usage: clients franz|sarama|segmentio BOOTSTRAP
// Prints one JSON object with the topic of each codec and the bytes of its payloads; exits non-zero
// on the first thing that is not as Kafka has it.
//
// Usage: clients member BOOTSTRAP TOPIC GROUP franz-classic|franz-consumer|sarama|segmentio
// Is a member of a group until it is told to end.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"time"
)

// client is what the steps need of a Kafka client. All calls end within `patience` or fail.
type client interface {
	// create makes a topic; errExists tells that it is there already.
	create(topic string, partitions int) error
	remove(topic string) error
	topics() ([]string, error)
	groups() ([]string, error)
	// produce sends in order to one partition and returns the offsets, nil if the client has none.
	produce(topic string, partition int, codec string, values [][]byte) ([]int64, error)
	// read takes the first records of partition 0.
	read(topic string, count int, committedOnly bool) ([]record, error)
	// member joins a group, takes records, commits and leaves.
	member(group, topic string, count int) ([]record, error)
}

// transactional is a client that has transactions.
type transactional interface {
	// transaction sends values to partition 0 and commits or aborts.
	transaction(topic string, values [][]byte, commits bool) error
}

// idempotent is a client that numbers its batches.
type idempotent interface {
	produceOnce(topic string, values [][]byte) ([]int64, error)
}

type record struct {
	partition int
	offset    int64
	key       []byte
	value     []byte
	header    string
}

const patience = 30 * time.Second

var errExists = errors.New("the topic exists already")

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

func main() {
	if len(os.Args) == 6 && os.Args[1] == "member" {
		stay(os.Args[2], os.Args[3], os.Args[4], os.Args[5])
		return
	}
	if len(os.Args) != 3 {
		fail("usage: clients franz|sarama|segmentio BOOTSTRAP, or clients member BOOTSTRAP TOPIC GROUP KIND")
	}
	name, bootstrap := os.Args[1], os.Args[2]
	var c client
	switch name {
	case "franz":
		c = newFranz(bootstrap)
	case "sarama":
		c = newSarama(bootstrap)
	case "segmentio":
		c = newSegmentio(bootstrap)
	default:
		fail("no client %q", name)
	}
	payloads := make([][]byte, 0, 1002)
	for i := range 1000 {
		payloads = append(payloads, payload(i))
	}
	payloads = append(payloads, []byte{}, bytes.Repeat([]byte("y"), 200_000))

	steps := []string{"codecs", "groups", "admin"}
	topics := everyCodec(c, name, payloads)
	groups(c, name)
	admin(c, name)
	if c, ok := c.(idempotent); ok {
		steps = append(steps, "idempotence")
		topic := name + "-idempotent"
		must(c.(client).create(topic, 1))
		offsets := try(c.produceOnce(topic, payloads))
		expect(inOrder(offsets, len(payloads)), "offsets %v", offsets)
	}
	if _, ok := c.(transactional); ok {
		steps = append(steps, "transactions")
		transactions(c, name)
	}
	size := 0
	for _, payload := range payloads {
		size += len(payload)
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"steps": steps, "topics": topics, "bytes": size})
}

func payload(i int) []byte {
	noise := make([]byte, 6)
	rand.Read(noise)
	return fmt.Appendf(append(bytes.Repeat([]byte("x"), 90), noise...), "%d", i)
}

func everyCodec(c client, name string, payloads [][]byte) map[string]string {
	topics := make(map[string]string)
	for _, codec := range codecs {
		topic := name + "-" + codec
		topics[codec] = topic
		must(c.create(topic, 1))
		offsets := try(c.produce(topic, 0, codec, payloads))
		expect(offsets == nil || inOrder(offsets, len(payloads)), "%s: offsets %v", codec, offsets)
		records := try(c.read(topic, len(payloads), false))
		for i, r := range records {
			expect(bytes.Equal(r.value, payloads[i]), "%s: payload %d differs", codec, i)
			expect(r.offset == int64(i), "%s: offset %d at %d", codec, r.offset, i)
			key := fmt.Sprint("k", i)
			expect(string(r.key) == key && r.header == key, "%s: record %d is %v", codec, i, r)
		}
	}
	return topics
}

func groups(c client, name string) {
	topic, group := name+"-group", name+"-group"
	must(c.create(topic, 3))
	for _, round := range []struct {
		word  string
		count int
	}{{"old", 50}, {"new", 10}} {
		var values [][]byte
		for i := range round.count {
			values = append(values, fmt.Appendf(nil, "%s %d", round.word, i))
		}
		var sent []string
		for partition := range 3 {
			try(c.produce(topic, partition, "none", values))
			for _, value := range values {
				sent = append(sent, fmt.Sprint(partition, string(value)))
			}
		}
		// The second member goes on after the commits: all that is new, and nothing twice.
		var got []string
		for _, r := range try(c.member(group, topic, 3*round.count)) {
			got = append(got, fmt.Sprint(r.partition, string(r.value)))
		}
		sort.Strings(sent)
		sort.Strings(got)
		expect(slices.Equal(got, sent), "%s: sent %v, got %v", round.word, sent, got)
	}
	listed := try(c.groups())
	expect(slices.Contains(listed, group), "%s is not in %v", group, listed)
}

func admin(c client, name string) {
	topic := name + "-admin"
	must(c.create(topic, 3))
	err := c.create(topic, 3)
	expect(errors.Is(err, errExists), "a topic was created twice: %v", err)
	expect(slices.Contains(try(c.topics()), topic), "the topic is not listed")
	must(c.remove(topic))
	// Some clients answer from what they remember for seconds.
	for deadline := time.Now().Add(patience); slices.Contains(try(c.topics()), topic); {
		expect(time.Now().Before(deadline), "the topic is still listed")
		time.Sleep(50 * time.Millisecond)
	}
}

func transactions(c client, name string) {
	topic := name + "-transactions"
	must(c.create(topic, 1))
	for number, commits := range []bool{true, false, true} {
		values := slices.Repeat([][]byte{fmt.Append(nil, number)}, 10)
		must(c.(transactional).transaction(topic, values, commits))
	}
	var got []byte
	for _, r := range try(c.read(topic, 20, true)) {
		got = append(got, r.value...)
	}
	expect(string(got) == "00000000002222222222", "read_committed gave %s", got)
	try(c.read(topic, 30, false))
}

func inOrder(offsets []int64, count int) bool {
	for i, offset := range offsets {
		if offset != int64(i) {
			return false
		}
	}
	return len(offsets) == count
}

func try[T any](value T, err error) T {
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Sprintf(format, arguments...))
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(2)
}
