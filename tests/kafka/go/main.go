// One consumer of a Go client as a process: `members.py` runs it.
//
// The same interface as pymember.py: standard input takes `start`, `stop`, `hold` and `exit` lines
// with words separated by tabs, standard output gives one JSON event a line, standard error is the
// client's log. Run as `member franz-go|sarama|segmentio`. SIGTERM stops it too.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// settings are Kafka's dotted keys, as consumer_settings() of members.py makes them.
type settings map[string]string

func (s settings) milliseconds(key string) time.Duration {
	number, err := strconv.Atoi(s[key])
	if err != nil {
		panic(fmt.Sprintf("%s=%q is not a number of milliseconds", key, s[key]))
	}
	return time.Duration(number) * time.Millisecond
}

func (s settings) list(key string) []string {
	if s[key] == "" {
		return nil
	}
	return strings.Split(s[key], ",")
}

// balancersOf maps the assignor list to the client's own objects; empty when none is set.
func balancersOf[T any](s settings, known map[string]func() T) ([]T, error) {
	var made []T
	for _, name := range s.list("partition.assignment.strategy") {
		build, found := known[name]
		if !found {
			return nil, fmt.Errorf("this client has no assignor %q", name)
		}
		made = append(made, build())
	}
	return made, nil
}

// reporter prints the events of one member.
type reporter struct {
	member string
	lock   sync.Mutex
	joined string
}

func (r *reporter) emit(event string, fields map[string]any) {
	record := map[string]any{"t_ms": time.Now().UnixMilli(), "id": r.member, "event": event}
	maps.Copy(record, fields)
	line, err := json.Marshal(record)
	if err != nil {
		panic(err)
	}
	r.lock.Lock()
	defer r.lock.Unlock()
	fmt.Println(string(line))
}

func (r *reporter) partitions(event string, byTopic map[string][]int32) {
	sorted := map[string][]int32{}
	for topic, numbers := range byTopic {
		sorted[topic] = slices.Sorted(slices.Values(numbers))
	}
	r.emit(event, map[string]any{"partitions": sorted})
}

// generation says `joined` when the member id or the generation is a new one.
func (r *reporter) generation(memberID string, generation int32) {
	now := fmt.Sprint(memberID, generation)
	r.lock.Lock()
	same := now == r.joined
	r.joined = now
	r.lock.Unlock()
	if !same && memberID != "" && generation >= 0 {
		r.emit("joined", map[string]any{"member_id": memberID, "generation": generation})
	}
}

func (r *reporter) failed(kind string, err error) {
	r.emit("error", map[string]any{"kind": kind, "message": err.Error()})
}

// control is what the test asks of a running member.
type control struct {
	ctx  context.Context
	hold chan time.Duration
}

// held sleeps as long as the test asked the application to be busy.
func (c control) held() {
	select {
	case pause := <-c.hold:
		time.Sleep(pause)
	default:
	}
}

var clients = map[string]func(settings, *reporter, control) (int, error){
	"franz-go":  runFranzGo,
	"sarama":    runSarama,
	"segmentio": runSegmentio,
}

func main() {
	input := bufio.NewScanner(os.Stdin)
	input.Scan()
	words := strings.Split(input.Text(), "\t")
	if words[0] != "start" {
		fmt.Fprintf(os.Stderr, "expected a start line, got %q\n", words)
		os.Exit(2)
	}
	given := settings{}
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		given[key] = value
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	asked := control{ctx: ctx, hold: make(chan time.Duration, 8)}
	go func() {
		for input.Scan() {
			switch words := strings.Split(input.Text(), "\t"); words[0] {
			case "stop", "exit":
				stop()
			case "hold":
				asked.hold <- settings{"hold": words[2]}.milliseconds("hold")
			}
		}
		os.Exit(3)
	}()
	report := &reporter{member: words[1]}
	report.emit("started", map[string]any{"pid": os.Getpid()})
	records, err := clients[os.Args[1]](given, report, asked)
	if err != nil {
		report.failed(fmt.Sprintf("%T", err), err)
		os.Exit(1)
	}
	report.emit("closed", map[string]any{"records": records})
}
