module example.com/orders

go 1.23

require (
	github.com/IBM/sarama v1.43.3
	github.com/twmb/franz-go v1.18.0 // indirect
)

require github.com/segmentio/kafka-go v0.4.47

exclude (
	github.com/IBM/sarama v1.40.0
)

replace github.com/IBM/sarama => github.com/IBM/sarama v1.45.0
