package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/segmentio/kafka-go"
)

var segmentioBalancers = map[string]func() kafka.GroupBalancer{
	"range":      func() kafka.GroupBalancer { return kafka.RangeGroupBalancer{} },
	"roundrobin": func() kafka.GroupBalancer { return kafka.RoundRobinGroupBalancer{} },
}

// runSegmentio joins and owns partitions; it reads no records, as no test asks this client for any.
func runSegmentio(given settings, report *reporter, asked control) (int, error) {
	balancers, err := balancersOf(given, segmentioBalancers)
	if err != nil {
		return 0, err
	}
	logger := log.New(os.Stderr, "[kafka-go] ", log.LstdFlags|log.Lmicroseconds)
	group, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID:                given["group.id"],
		Brokers:           given.list("bootstrap.servers"),
		Topics:            given.list("topics"),
		GroupBalancers:    balancers,
		Dialer:            &kafka.Dialer{ClientID: given["client.id"]},
		SessionTimeout:    given.milliseconds("session.timeout.ms"),
		HeartbeatInterval: given.milliseconds("heartbeat.interval.ms"),
		Logger:            kafka.LoggerFunc(logger.Printf),
	})
	if err != nil {
		return 0, err
	}
	for {
		generation, err := group.Next(asked.ctx)
		if asked.ctx.Err() != nil {
			return 0, group.Close()
		}
		if errors.Is(err, kafka.RebalanceInProgress) {
			continue // another member came meanwhile: it joins again at once
		}
		if err != nil {
			kind := fmt.Sprintf("%T", err)
			if errors.Is(err, kafka.InconsistentGroupProtocol) {
				kind = "refused"
			}
			report.failed(kind, err)
			continue
		}
		report.generation(generation.MemberID, generation.ID)
		owned := map[string][]int32{}
		for topic, partitions := range generation.Assignments {
			for _, each := range partitions {
				owned[topic] = append(owned[topic], int32(each.ID))
			}
		}
		report.partitions("assigned", owned)
		generation.Start(func(ctx context.Context) {
			<-ctx.Done()
			report.partitions("revoked", owned)
		})
	}
}
