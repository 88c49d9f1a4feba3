package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

var saramaStrategies = map[string]func() sarama.BalanceStrategy{
	"range":              sarama.NewBalanceStrategyRange,
	"roundrobin":         sarama.NewBalanceStrategyRoundRobin,
	"sticky":             sarama.NewBalanceStrategySticky,
	"cooperative-sticky": sarama.NewBalanceStrategyCooperativeSticky,
}

// saramaHandler says what it owns by the life of each claim: in a cooperative session Setup and
// Cleanup run only at its two ends.
type saramaHandler struct {
	report  *reporter
	asked   control
	records atomic.Int64
}

func (h *saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	go func() {
		for session.Context().Err() == nil {
			h.report.generation(session.MemberID(), session.GenerationID())
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return nil
}

func (h *saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	mine := map[string][]int32{claim.Topic(): {claim.Partition()}}
	h.report.partitions("assigned", mine)
	defer h.report.partitions("revoked", mine)
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			h.asked.held()
			h.records.Add(1)
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func runSarama(given settings, report *reporter, asked control) (int, error) {
	strategies, err := balancersOf(given, saramaStrategies)
	if err != nil {
		return 0, err
	}
	sarama.Logger = log.New(os.Stderr, "[sarama] ", log.LstdFlags|log.Lmicroseconds)
	config := sarama.NewConfig()
	config.ClientID = given["client.id"]
	config.Metadata.RefreshFrequency = given.milliseconds("metadata.max.age.ms")
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = given.milliseconds("auto.commit.interval.ms")
	config.Consumer.Group.InstanceId = given["group.instance.id"]
	config.Consumer.Group.Session.Timeout = given.milliseconds("session.timeout.ms")
	config.Consumer.Group.Heartbeat.Interval = given.milliseconds("heartbeat.interval.ms")
	if strategies != nil {
		config.Consumer.Group.Rebalance.GroupStrategies = strategies
	}
	group, err := sarama.NewConsumerGroup(
		given.list("bootstrap.servers"), given["group.id"], config,
	)
	if err != nil {
		return 0, err
	}
	handler := &saramaHandler{report: report, asked: asked}
	for asked.ctx.Err() == nil {
		err := group.Consume(asked.ctx, given.list("topics"), handler)
		if err == nil || errors.Is(err, context.Canceled) {
			continue
		}
		kind := fmt.Sprintf("%T", err)
		if errors.Is(err, sarama.ErrInconsistentGroupProtocol) {
			kind = "refused"
		}
		report.failed(kind, err)
		time.Sleep(time.Second)
	}
	return int(handler.records.Load()), group.Close()
}
