package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var franzGoBalancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"sticky":             kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

// groupErrors reports each end of a group session: franz-go goes on and joins again by itself.
type groupErrors struct{ report *reporter }

func (g groupErrors) OnGroupManageError(err error) {
	kind := fmt.Sprintf("%T", err)
	if errors.Is(err, kerr.InconsistentGroupProtocol) {
		kind = "refused"
	}
	g.report.failed(kind, err)
}

func runFranzGo(given settings, report *reporter, asked control) (int, error) {
	balancers, err := balancersOf(given, franzGoBalancers)
	if err != nil {
		return 0, err
	}
	told := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
			report.partitions(event, partitions)
		}
	}
	stamp := func() string { return time.Now().UTC().Format("2006-01-02 15:04:05.000 ") }
	options := []kgo.Opt{
		kgo.SeedBrokers(given.list("bootstrap.servers")...),
		kgo.ClientID(given["client.id"]),
		kgo.ConsumerGroup(given["group.id"]),
		kgo.ConsumeTopics(given.list("topics")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitInterval(given.milliseconds("auto.commit.interval.ms")),
		kgo.MetadataMaxAge(given.milliseconds("metadata.max.age.ms")),
		kgo.OnPartitionsAssigned(told("assigned")),
		kgo.OnPartitionsRevoked(told("revoked")),
		kgo.OnPartitionsLost(told("lost")),
		kgo.WithHooks(groupErrors{report}),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, stamp)),
	}
	if given["group.protocol"] == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	} else {
		options = append(
			options,
			kgo.SessionTimeout(given.milliseconds("session.timeout.ms")),
			kgo.HeartbeatInterval(given.milliseconds("heartbeat.interval.ms")),
		)
	}
	if given["max.poll.interval.ms"] != "" {
		options = append(options, kgo.RebalanceTimeout(given.milliseconds("max.poll.interval.ms")))
	}
	if balancers != nil {
		options = append(options, kgo.Balancers(balancers...))
	}
	if instance := given["group.instance.id"]; instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return 0, err
	}
	records := 0
	for asked.ctx.Err() == nil {
		asked.held()
		ctx, cancel := context.WithTimeout(asked.ctx, 100*time.Millisecond)
		records += client.PollFetches(ctx).NumRecords()
		cancel()
		report.generation(client.GroupMetadata())
	}
	client.Close()
	return records, nil
}
